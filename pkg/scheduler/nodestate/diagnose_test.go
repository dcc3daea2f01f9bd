// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// stock gives the State informers' stores with these objects.
func (e *testEnv) stock(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	store := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	p, n := store(), store()
	for _, pod := range pods {
		if err := p.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Add(e.node); err != nil {
		t.Fatal(err)
	}
	e.listers.stores = informerStores{pods: corelisters.NewPodLister(p), nodes: corelisters.NewNodeLister(n)}
	e.listers.pods = informerPods{e.listers.stores.pods}
}

// used names the GPUs at these positions as the debug endpoint does.
func (e *testEnv) used(positions ...int) map[string][]string {
	if len(positions) == 0 {
		return map[string][]string{}
	}
	var ids []string
	for _, i := range positions {
		ids = append(ids, e.Nodes.Node("n").Accel(testResource).Graph.GPUs[i].UUID)
	}
	return map[string][]string{testResource: ids}
}

// TestDiagnosisUsage: the diagnosis derives usage from every source.
func TestDiagnosisUsage(t *testing.T) {
	tests := map[string]struct {
		arrange     func(t *testing.T, r *testEnv) []*v1.Pod // in the informer's store
		wantUsed    []int
		wantCounted map[string]int
	}{
		"nothing runs": {arrange: func(*testing.T, *testEnv) []*v1.Pod { return nil }},
		"a bound pod with an annotation": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 3)}
			},
			wantUsed: []int{0, 3},
		},
		"an annotation on an unbound pod": {arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			p := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 3)
			p.Spec.NodeName = ""
			return []*v1.Pod{p}
		}},
		"a pod that has ended": {arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			p := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 3)
			p.Status.Phase = v1.PodFailed
			return []*v1.Pod{p}
		}},
		"a reservation": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				info, l := r.view(t)
				if _, reason := r.Allocations.Assume(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), schedtest.Pod("p").GPUs(2).Obj(), info,
					l); reason != placement.Fits {
					t.Fatal(reason)
				}
				return []*v1.Pod{schedtest.Pod("p").GPUs(2).Obj()}
			},
			wantUsed: []int{0, 3},
		},
		"a foreign pod known by count": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n")}
			},
			wantCounted: map[string]int{testResource: 2},
		},
		"a foreign pod half of whose GPUs are recorded": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.recordOn(t, "p", 5)
				return []*v1.Pod{on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n")}
			},
			wantUsed: []int{5}, wantCounted: map[string]int{testResource: 1},
		},
		"a pod whose record differs holds both": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.recordOn(t, "p", 5)
				return []*v1.Pod{on(t, r.State, schedtest.Pod("p").GPUs(1).Obj(), "n", 0)}
			},
			wantUsed: []int{0, 5},
		},
		"a pod that is gone, while the agent still has it": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.recordOn(t, "gone", 5)
				return nil
			},
			wantUsed: []int{5},
		},
		"the same, and the agent is dead": {arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			r.recordOn(t, "gone", 5)
			r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
			return nil
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.stock(t, tc.arrange(t, r)...)
			d := r.Diagnosis.Diagnose("me")
			if len(d.Nodes) != 1 || !d.Nodes[0].Counts {
				t.Fatalf("nodes %+v, want one whose graph counts", d.Nodes)
			}
			want := &diagnosis.Usage{Used: r.used(tc.wantUsed...), Counted: tc.wantCounted}
			if diff := cmp.Diff(want, d.Nodes[0].Derived, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("derived (-want +got):\n%s", diff)
			}
			if _, err := json.Marshal(d); err != nil {
				t.Errorf("as JSON: %v", err)
			}
		})
	}
}

// recordOn makes the agent's record give a GPU to a pod.
func (e *testEnv) recordOn(t *testing.T, uid string, position int) {
	t.Helper()
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.ResourceVersion = "2"
	obj.Status.Allocations = []v1alpha1.Allocation{{
		PodUID: types.UID(uid), Container: "main", Resource: testResource, GPUs: e.used(position)[testResource],
	}}
	if _, err := e.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
}

// TestDiagnosisGraphs: the diagnosis has the reason for an invalid graph.
func TestDiagnosisGraphs(t *testing.T) {
	tests := map[string]struct {
		arrange func(r *testEnv)
		want    string
	}{
		"it counts":            {func(*testEnv) {}, ""},
		"the exporter is dead": {func(r *testEnv) { r.PodDevices.leases.Drop(nodelease.ExporterPrefix + "n") }, placement.StaleGraph.String()},
		"the Node was made anew": {func(r *testEnv) {
			r.node = r.node.DeepCopy()
			r.node.UID = "other"
		}, placement.NodeReplaced.String()},
		"the Node is gone": {func(r *testEnv) {
			r.node = r.node.DeepCopy()
			r.node.Name = "other"
		}, "there is no such Node"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			tc.arrange(r)
			r.stock(t)
			d := r.Diagnosis.Diagnose("me")
			if len(d.Nodes) != 1 || d.Nodes[0].Why != tc.want || d.Nodes[0].Counts != (tc.want == "") {
				t.Errorf("got %+v, want why %q", d.Nodes, tc.want)
			}
		})
	}
}

// TestDiagnosisHolds: the diagnosis has the objects that are held back.
func TestDiagnosisHolds(t *testing.T) {
	r := newTestEnv(t, "dgx2")
	r.stock(t)
	h := r.Nodes.topologies.Handler(r.Changes.passOn(t.Context()))
	obj := topologyOf(t, "n", "dgx2")
	for i := range 2 { // only the first new graph of this number of GPUs is read at once
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(i + 2)
		obj.Spec.LinkKinds[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * (i + 1)))
		obj.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: obj.Spec.GPUs[3].ID, Reason: "Xid79"}}
		h.OnUpdate(nil, obj)
	}
	n := r.Diagnosis.Diagnose("me").Nodes[0]
	if diff := cmp.Diff(&diagnosis.HeldBack{ResourceVersion: "3", Since: r.clock.now.UTC(), GraphOnly: true}, n.HeldBack); diff != "" {
		t.Errorf("held back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(r.used(0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), n.Offered); diff != "" {
		t.Errorf("offered, beside the sick GPU (-want +got):\n%s", diff)
	}
}

// TestDiagnosisContents: the diagnosis has the cycle, the index and the profiles.
func TestDiagnosisContents(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.Profiles.Serve("shipped", []string{testResource})
	r.Profiles.Serve("other", []string{testResource})
	r.Profiles.Describe("shipped", func(p *diagnosis.Profile) { p.Resources, p.DefaultPolicy = []string{testResource}, "restricted" })
	pod := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 3)
	r.stock(t, pod)
	if d := r.Diagnosis.Diagnose("me"); d.LastSweep != nil || d.Nodes[0].Memo != nil {
		t.Errorf("before any cycle: swept %v, memo %+v, want none", d.LastSweep, d.Nodes[0].Memo)
	}
	info, l := r.view(t, pod)
	r.Allocations.Sweep(l)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("next").GPUs(1).Obj()), info, l); v.Reason != placement.Fits {
		t.Fatal(v.Reason)
	}
	d := r.Diagnosis.Diagnose("me")
	if d.LastSweep == nil || !d.LastSweep.Equal(r.clock.now) {
		t.Errorf("last sweep %v, want %v", d.LastSweep, r.clock.now)
	}
	memo := d.Nodes[0].Memo
	if diff := cmp.Diff(r.used(0, 3), memo.Used); diff != "" || !memo.Current || memo.Generation != info.GetGeneration() {
		t.Errorf("memo %+v, want the pod's GPUs (-want +got):\n%s", memo, diff)
	}
	want := []diagnosis.Profile{{Name: "other", Resources: []string{testResource}}, {Name: "shipped", Resources: []string{testResource}, DefaultPolicy: "restricted"}}
	if diff := cmp.Diff(want, d.Profiles); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
	alloc := &allocation.Allocation{Node: "n", Containers: []allocation.Container{{GPUs: []string{"GPU-a", "GPU-b"}}}}
	r.Nominator.ReserveNominated("nominated", alloc, reservations.WaitsFor{Until: r.clock.now.Add(time.Minute)})
	held := []diagnosis.NominatedReservation{{UID: "nominated", Node: "n", Until: r.clock.now.Add(time.Minute).UTC(), GPUs: []string{"GPU-a", "GPU-b"}}}
	if diff := cmp.Diff(held, r.Diagnosis.Diagnose("me").Holds); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}
}
