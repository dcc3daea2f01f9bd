// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// teller records the reasons reported on pods.
type teller struct {
	idle
	said map[string]string // by pod
}

func (r *teller) Say(_ gangrequest.Key, pods []*v1.Pod, why string) {
	for _, pod := range pods {
		r.said[pod.Name] = why
	}
}

// TestTellWhenComplete: the members of a gang that lacked one report the new reason at the next tick once
// it is complete. Before, they reported a missing one for up to ten seconds more.
func TestTellWhenComplete(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waits time.Duration // from when the gang is complete until there is a reason
		want  map[string]string
	}{
		"there is no room at once":         {want: map[string]string{"g-0": "no room", "g-1": "no room"}},
		"there is no room after two looks": {waits: 2 * time.Second, want: map[string]string{"g-0": "no room", "g-1": "no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			r := &teller{said: map[string]string{}}
			g := New(clk, Config{}, r)
			g.Serve(testProfile)
			look := func(times int) {
				for range times {
					g.tick()
					clk.SetTime(clk.Now().Add(time.Second))
				}
			}
			pods := []*v1.Pod{member("g", 2, "g-0").Obj(), member("g", 2, "g-1").Obj()}
			key, _ := gangrequest.KeyOf(pods[0])
			g.SetPod(pods[0])
			look(6)
			if diff := cmp.Diff(map[string]string{"g-0": "gang: 1 of 2 members"}, r.said); diff != "" {
				t.Fatalf("while one is missing (-want,+got)\n%s", diff)
			}
			g.SetPod(pods[1])
			look(int(tc.waits / time.Second))
			g.Wait(key, &Wait{Why: "no room", ForChange: true})
			look(1)
			if diff := cmp.Diff(tc.want, r.said); diff != "" {
				t.Errorf("when it is complete (-want,+got)\n%s", diff)
			}
			g.Wait(key, &Wait{Why: "another reason", ForChange: true})
			look(9)
			if diff := cmp.Diff(tc.want, r.said); diff != "" {
				t.Errorf("another reason is told within ten seconds (-want,+got)\n%s", diff)
			}
			look(2)
			if got := r.said["g-0"]; got != "another reason" {
				t.Errorf("ten seconds later: %q", got)
			}
		})
	}
}
