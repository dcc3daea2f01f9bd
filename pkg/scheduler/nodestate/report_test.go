// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestNodeReports: reports have the states of nodes.
func TestNodeReports(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, r *testEnv)
		want   string // state; empty: the node is not reported
		stale  *bool
	}{
		"fresh":                       {func(*testing.T, *testEnv) {}, "counted", nil},
		"silent":                      {func(t *testing.T, r *testEnv) { t.Helper(); r.unvouch(t, placement.StaleGraph) }, "stale", nil},
		"missing":                     {func(t *testing.T, r *testEnv) { t.Helper(); r.unvouch(t, placement.NoGraph) }, "missing", nil},
		"replaced":                    {func(t *testing.T, r *testEnv) { t.Helper(); r.unvouch(t, placement.NodeReplaced) }, "replaced", nil},
		"a graph that cannot be read": {func(t *testing.T, r *testEnv) { t.Helper(); r.unvouch(t, placement.UnreadableGraph) }, "malformed", nil},
		"a part that cannot be read": {func(t *testing.T, r *testEnv) {
			t.Helper()
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion, obj.Status.Kubelet = "2", &v1alpha1.Kubelet{TopologyManagerPolicy: "none", ReservedCPUs: "3-1"}
			if _, err := r.Graphs.Apply(obj); err == nil {
				t.Fatal("accepted")
			}
		}, "malformed", nil},
		"reported as stale": {func(t *testing.T, r *testEnv) {
			t.Helper()
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion = "2"
			obj.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStale, Status: metav1.ConditionTrue}}
			if _, err := r.Graphs.Apply(obj); err != nil {
				t.Fatal(err)
			}
		}, "counted", new(true)},
		"no accelerators": {func(t *testing.T, r *testEnv) {
			t.Helper()
			r.unvouch(t, placement.NoGraph)
			delete(r.node.Status.Allocatable, testResource)
		}, "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.Profiles.Serve("profile", []string{testResource})
			tc.change(t, r)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := store.Add(r.node); err != nil {
				t.Fatal(err)
			}
			r.listers.stores.nodes = corelisters.NewNodeLister(store)
			got := r.Diagnosis.Reports()
			if tc.want == "" {
				if len(got) != 0 {
					t.Errorf("reported: %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].State() != tc.want {
				t.Fatalf("reports %+v, want one that is %s", got, tc.want)
			}
			if diff := cmp.Diff(tc.stale, got[0].Stale); diff != "" {
				t.Errorf("condition Stale (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestLeaseEndWakeUp: the end of a Lease, for which there is no event, wakes the pods that fit because of
// it.
func TestLeaseEndWakeUp(t *testing.T) {
	tests := map[string]struct {
		before func(t *testing.T, r *testEnv)
		lease  string
		want   bool
		cycle  bool // another pod's cycle comes before the Leases are checked
	}{
		"an agent that said a pod which is gone has GPUs": {
			func(t *testing.T, r *testEnv) { t.Helper(); r.record(t, "gone", 1, 2) },
			nodelease.AgentPrefix, true, false,
		},
		"the same, and another pod is tried first": {
			func(t *testing.T, r *testEnv) { t.Helper(); r.record(t, "gone", 1, 2) },
			nodelease.AgentPrefix, true, true,
		},
		"an agent that said nothing":                 {func(*testing.T, *testEnv) {}, nodelease.AgentPrefix, false, false},
		"an exporter":                                {func(*testing.T, *testEnv) {}, nodelease.ExporterPrefix, false, false},
		"an exporter where pods are placed by count": {func(_ *testing.T, r *testEnv) { r.SetCountStale() }, nodelease.ExporterPrefix, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			tc.before(t, r)
			r.PodDevices.leases.Set(lease(tc.lease+"n", r.clock.now, time.Minute), r.clock.now)
			info, l := r.view(t, []*v1.Pod{}...)
			r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(8).Obj()), info, l)
			if r.expiry.expired() {
				t.Error("a Lease that lives ended")
			}
			r.clock.now = r.clock.now.Add(time.Minute)
			if tc.cycle {
				r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(8).Obj()), info, l)
			}
			if got := r.expiry.expired(); got != tc.want {
				t.Errorf("woken %t, want %t", got, tc.want)
			}
			if r.expiry.expired() {
				t.Error("it ended twice")
			}
		})
	}
}

// TestUnreadableGraphEnd: the expiry of an unreadable graph wakes pods: if pods are placed by count, some
// fit from the moment at which the last good graph is no longer valid.
func TestUnreadableGraphEnd(t *testing.T) {
	for name, count := range map[string]bool{"pods are placed by count": true, "they are not": false} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			if count {
				r.SetCountStale()
			}
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion, obj.Spec.LinkKinds[0].Class = "2", "NVLink9"
			if _, err := r.Graphs.Apply(obj); err == nil {
				t.Fatal("a link class that nobody knows was accepted")
			}
			for i, want := range []bool{false, false, count, false} {
				r.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", r.clock.now, 2*time.Minute), r.clock.now)
				if got := r.expiry.expired(); got != want {
					t.Errorf("after %d minutes: woken %t, want %t", i, got, want)
				}
				r.clock.now = r.clock.now.Add(time.Minute)
			}
		})
	}
}
