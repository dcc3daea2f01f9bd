// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestPatienceStart: the topology wait timeout begins with the first room: the wait for room is not part
// of it, and only a missing member makes it begin again.
func TestPatienceStart(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 0, 1, false)
	pods := []*v1.Pod{member("a", 2, "a-0").Obj(), member("a", 2, "a-1").Obj()}
	for _, pod := range pods {
		r.set(pod)
	}
	key := r.gangs.queue.byPod[pods[0].UID].key
	r.clock.Step(time.Hour)
	first := r.gangs.Room(key)
	if !first.Equal(r.clock.Now()) {
		t.Errorf("room since %v, want now, %v", first, r.clock.Now())
	}
	r.settle(60)
	if again := r.gangs.Room(key); !again.Equal(first) {
		t.Errorf("room since %v, want the first time, %v", again, first)
	}
	r.gate("a-1", true)
	r.clock.Step(time.Hour)
	r.gate("a-1", false)
	if anew := r.gangs.Room(key); !anew.Equal(r.clock.Now()) {
		t.Errorf("room since %v after a member was missing, want now, %v", anew, r.clock.Now())
	}
}
