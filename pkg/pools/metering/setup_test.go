// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// asked is a queue that notes after how long it was asked for which pod.
type asked struct {
	queue

	after map[types.UID]time.Duration
}

func (a asked) Add(uid types.UID)                           { a.after[uid] = 0 }
func (a asked) AddAfter(uid types.UID, after time.Duration) { a.after[uid] = after }

func TestOnlyPodsThatHoldDevicesCanWait(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		node       string
		phase      v1.PodPhase
		deleted    *metav1.Time
		finalizers []string
		want       map[types.UID]time.Duration
	}{
		"one that was just bound is gathered with its start":           {node: "n1", phase: v1.PodPending, want: map[types.UID]time.Duration{"a": gathering}},
		"one that runs as well":                                        {node: "n1", phase: v1.PodRunning, want: map[types.UID]time.Duration{"a": gathering}},
		"one that has ended is let go at once":                         {node: "n1", phase: v1.PodSucceeded, want: map[types.UID]time.Duration{"a": 0}},
		"one that is deleted, too":                                     {node: "n1", phase: v1.PodRunning, deleted: &now, want: map[types.UID]time.Duration{"a": 0}},
		"one that is deleted before it was bound, but has a finalizer": {deleted: &now, finalizers: []string{names.FinalizerMetering}, want: map[types.UID]time.Duration{"a": 0}},
		"one without a node holds nothing":                             {phase: v1.PodPending, want: map[types.UID]time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			devices := v1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "a", DeletionTimestamp: tc.deleted, Finalizers: tc.finalizers},
				Spec:       v1.PodSpec{NodeName: tc.node, Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: devices, Requests: devices}}}},
				Status:     v1.PodStatus{Phase: tc.phase},
			}
			q := asked{after: map[types.UID]time.Duration{}}
			r := &reconciler{}
			r.pods().Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}, q)
			if diff := cmp.Diff(tc.want, q.after); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
