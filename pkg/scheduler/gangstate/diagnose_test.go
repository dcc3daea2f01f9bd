// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestDiagnose: Diagnose returns the progress of a gang, from its first pod to its first attempt.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2, 0, false)
	want := func(when string, gangs ...diagnosis.Gang) {
		t.Helper()
		if diff := cmp.Diff(gangs, r.gangs.Diagnose()); diff != "" {
			t.Errorf("%s (-want,+got)\n%s", when, diff)
		}
	}
	pods := []types.UID{"g-0", "g-1"}
	r.set(member("g", 2, "g-0").Obj())
	told := diagnosis.Gang{Gang: "gang ns/g", Pods: 1, Waits: "gang: 1 of 2 members"}
	want("with one of two pods", told)

	r.set(member("g", 2, "g-1").Obj())
	until := r.clock.Now().Add(time.Minute).UTC()
	key := r.gangs.queue.keys(func(*gang) bool { return true })[0]
	r.gangs.Wait(key, &Wait{Why: "no room", Until: until})
	told.Pods, told.Waits, told.Until = 2, "no room", &until
	want("without room", told)

	r.gangs.Wait(key, nil)
	r.clock.Step(time.Second)
	r.cycle()
	told.Waits, told.Until = "", nil
	told.Attempt = &diagnosis.GangAttempt{Phase: "collecting", Since: r.clock.Now().UTC(), Held: pods[:1], Waiting: pods[1:]}
	want("while the one that came last waits for the other", told)

	r.clock.Step(time.Second)
	r.settle(1)
	r.binding.Wait()
	told.Attempt = nil
	want("bound", told)
}
