// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// doubted is a State in which the test sets whether an allocation is confirmed.
type doubted struct {
	*nodestate.State
	proven bool
}

func (d *doubted) Unproven(pod *v1.Pod) *allocation.Allocation {
	if a := choiceOf(pod); a != nil && a.Enforced && !d.proven {
		return a
	}
	return nil
}

// TestUnprovenAllocation: an allocation that no agent confirms loses its mark. The agent of the node was
// removed; each step has its duration, whether the allocation is confirmed at its end, and the state of
// the pod.
func TestUnprovenAllocation(t *testing.T) {
	type step struct {
		after  time.Duration
		proven bool
		change func(*v1.Pod)
	}
	admitted := func(p *v1.Pod) { p.Status.StartTime = new(metav1.NewTime(time.Unix(1, 0))) }
	marked := []string{"p: main=0,1 enforced false"}
	told := []string{"Warning GPUsUnproven the node agent of node n1 is silent, and none has said which GPUs kubelet gave this pod: they may differ from its annotations"}
	tests := map[string]struct {
		steps      []step
		removed    bool // the node's graph
		want, said []string
	}{
		"nobody speaks for it, and it is marked, once": {
			steps: []step{{change: admitted}, {after: time.Minute}, {after: time.Hour}}, want: marked, said: told,
		},
		"also where the graph is gone with the agent": {
			steps: []step{{change: admitted}, {after: time.Minute}, {after: time.Hour}}, removed: true, want: marked, said: told,
		},
		"not yet": {steps: []step{{change: admitted}, {after: 59 * time.Second}}},
		"the agent comes back in time": {
			steps: []step{{change: admitted}, {after: 45 * time.Second}, {after: 10 * time.Second, proven: true}, {after: 30 * time.Second}},
		},
		"the agent goes on": {steps: []step{{change: admitted, proven: true}, {after: time.Hour, proven: true}}},
		"kubelet has not admitted the pod, and an agent may yet serve it": {steps: []step{{}, {after: time.Hour}}},
		"a pod that has ended says nothing any more": {
			steps: []step{{change: admitted}, {after: time.Hour, change: func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }}},
		},
		"a pod that ends says nothing any more": {
			steps: []step{{change: admitted}, {after: time.Hour, change: func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
			state, g := stateOf(t, "dgx1-v100")
			recorder := events.NewFakeRecorder(10)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			chosen := allocated(g, "main=0,1")
			text, err := chosen.Encode()
			if err != nil {
				t.Fatal(err)
			}
			pod := testobj.Pod("p").Namespace("ns").UID(string(chosen.PodUID)).ResourceVersion("7").Node(testNode).
				Annotation(allocation.Key, text).Annotation(allocation.GPUIDsKey, "a,b").Annotation("team", "x").Obj()
			if tt.removed && !state.Graphs.Remove(testNode, "topology") {
				t.Fatal("the graph was not there")
			}
			var got []string
			client := fake.NewClientset()
			client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				p, ok := a.(clienttesting.PatchAction)
				if !ok {
					return true, nil, fmt.Errorf("unexpected request %v", a)
				}
				var body struct{ Metadata metav1.ObjectMeta }
				if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
					return true, nil, err
				}
				if body.Metadata.UID != pod.UID || body.Metadata.ResourceVersion != pod.ResourceVersion {
					t.Errorf("the patch is for UID %q, version %q", body.Metadata.UID, body.Metadata.ResourceVersion)
				}
				written, err := allocation.Parse(body.Metadata.Annotations[allocation.Key])
				if err != nil {
					return true, nil, err
				}
				got = append(got, fmt.Sprintf("%s: %s enforced %t", p.GetName(), inWords(g, written), written.Enforced))
				pod = pod.DeepCopy()
				pod.Annotations = body.Metadata.Annotations
				return true, pod, store.Update(pod)
			})
			d := &doubted{State: state}
			u := NewUnprovenMarker(d, client, corelisters.NewPodLister(store), recorder, clk)
			for _, s := range tt.steps {
				clk.Step(s.after)
				d.proven = s.proven
				pod = pod.DeepCopy()
				if s.change != nil {
					s.change(pod)
				}
				if err := store.Update(pod); err != nil {
					t.Fatal(err)
				}
				u.look(t.Context())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
			close(recorder.Events)
			var said []string
			for e := range recorder.Events {
				said = append(said, e)
			}
			if diff := cmp.Diff(tt.said, said); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
