// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// TestNobodyToEvict: no victims are searched for a gang without room if no pod leaves a node and none has
// a lower priority. It would be planned a second time in vain, and with a thousand gangs that took most of
// the scheduler's time. Not parallel, as the attempts are counted for the process.
func TestNobodyToEvict(t *testing.T) { //nolint:paralleltest // see above
	const gangPriority = 10
	tests := map[string]struct {
		priority int32 // of the pod on the only node
		leaves   bool
		held     bool // places are held there in place of a pod
		want     float64
	}{
		"nobody is there who matters less":             {priority: gangPriority},
		"a pod that matters less":                      {want: 1},
		"one that matters as much, and leaves":         {priority: gangPriority, leaves: true, want: 1},
		"places are held for a gang that matters less": {held: true, want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			r := newTestEnv(t, 1)
			if tc.held {
				other := r.gangOf("other", 2, 4, tc.priority)
				r.known(other[0])
				if c := r.cycle(other[0]); !c.status.IsWait() {
					t.Fatalf("the other gang has no places: %v", c.status)
				}
			} else {
				pod := r.create(gpuPod("on-node", 8).Node("node-0-0").Priority(tc.priority).Obj())
				if tc.leaves {
					pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(20 * time.Second)}
				}
				r.place(pod)
			}
			gang := r.gangOf("gang", 1, 8, gangPriority)
			r.known(gang[0])
			attempts := func() float64 {
				n, err := testutil.GetCounterMetricValue(metrics.PreemptionAttempts)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := attempts()
			if why := r.failing(gang[0]); attempts()-before != tc.want {
				t.Errorf("victims were looked for %v times, want %v: %s", attempts()-before, tc.want, why)
			}
		})
	}
}
