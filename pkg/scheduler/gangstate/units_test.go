// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestOthers: the members that a preemptor may evict from a gang of minimum 2.
func TestOthers(t *testing.T) {
	t.Parallel()
	of := func(priority int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &priority } }
	ended := func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded }
	leaving := func(pod *v1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	unbound := func(pod *v1.Pod) { pod.Spec.NodeName = "" }
	same := func(*v1.Pod) {}
	tests := map[string]struct {
		change                  []func(*v1.Pod) // by member; all are bound otherwise
		wantNeeded, wantSurplus []string
	}{
		"as many as it needs":                     {change: []func(*v1.Pod){same, same}, wantNeeded: []string{"m-0", "m-1"}},
		"two more":                                {change: []func(*v1.Pod){same, same, same, same}, wantNeeded: []string{"m-0", "m-1"}, wantSurplus: []string{"m-2", "m-3"}},
		"one that ended counts":                   {change: []func(*v1.Pod){ended, same, same}, wantNeeded: []string{"m-1"}, wantSurplus: []string{"m-2"}},
		"one that is being deleted does not":      {change: []func(*v1.Pod){leaving, same, same}, wantNeeded: []string{"m-1", "m-2"}},
		"nor one that waits":                      {change: []func(*v1.Pod){same, same, unbound}, wantNeeded: []string{"m-0", "m-1"}},
		"the least of the priorities counts":      {change: []func(*v1.Pod){of(20), of(5)}, wantNeeded: []string{"m-0", "m-1"}},
		"nobody of one that matters as much":      {change: []func(*v1.Pod){of(20), of(10)}},
		"nobody of one that is on no node at all": {change: []func(*v1.Pod){unbound, unbound}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{})
			for i, change := range tc.change {
				pod := member("low", 2, "m-"+string(rune('0'+i))).Node("node").Obj()
				change(pod)
				g.SetPod(pod)
			}
			var needed, surplus []string
			for _, o := range g.Others(10) {
				for _, l := range o.Needed {
					needed = append(needed, l.Pod.Name)
				}
				for _, l := range o.Surplus {
					surplus = append(surplus, l.Pod.Name)
				}
			}
			if diff := cmp.Diff([][]string{tc.wantNeeded, tc.wantSurplus}, [][]string{needed, surplus}); diff != "" {
				t.Errorf("needed, surplus (-want,+got)\n%s", diff)
			}
		})
	}
}
