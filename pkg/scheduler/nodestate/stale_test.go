// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// unvouch brings the node into one of the states in which its graph is not valid.
func (e *testEnv) unvouch(t *testing.T, how placement.Reason) {
	t.Helper()
	switch how {
	case placement.NoGraph:
		e.Graphs.Remove("n", "topology-n")
	case placement.NodeReplaced:
		e.node.UID = "another"
	case placement.StaleGraph:
		e.PodDevices.leases.Drop(nodelease.ExporterPrefix + "n")
	case placement.UnreadableGraph:
		e.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", e.clock.now, 2*time.Minute), e.clock.now)
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.ResourceVersion, obj.Spec.LinkKinds[0].Class = "2", "NVLink9"
		if _, err := e.Graphs.Apply(obj); err == nil {
			t.Fatal("a link class that nobody knows was accepted")
		}
		e.clock.now = e.clock.now.Add(time.Minute)
		e.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", e.clock.now, 2*time.Minute), e.clock.now)
		e.clock.now = e.clock.now.Add(time.Minute)
	default:
		t.Fatalf("unknown state %d", how)
	}
}

// TestUncountedGraphs has the whole table of which pods may go to which nodes.
func TestUncountedGraphs(t *testing.T) {
	const (
		never   = 1 << iota // regardless of the arguments
		allow               // with nodesWithoutTopology: Allow
		count               // with staleTopology: Count
		neither             // also with neither
	)
	type notes = map[string]string
	pods := map[string]struct {
		gpus    int
		notes   notes
		missing int // on nodes without a graph of their own
		stale   int
	}{
		"best effort":      {gpus: 2, missing: allow, stale: count},
		"policy none":      {gpus: 2, notes: notes{podrequest.TopologyPolicyKey: "none"}, missing: neither, stale: neither},
		"numa preferred":   {gpus: 2, notes: notes{podrequest.NUMAAffinityKey: "preferred"}, missing: allow, stale: count},
		"one GPU":          {gpus: 1, missing: allow, stale: count},
		"restricted":       {gpus: 2, notes: notes{podrequest.TopologyPolicyKey: "restricted"}, missing: never, stale: never},
		"single-numa-node": {gpus: 2, notes: notes{podrequest.TopologyPolicyKey: "single-numa-node"}, missing: never, stale: never},
		"min-link":         {gpus: 2, notes: notes{podrequest.MinLinkKey: "NVLINK"}, missing: never, stale: never},
		"min-bandwidth":    {gpus: 2, notes: notes{podrequest.MinBandwidthKey: "10"}, missing: never, stale: never},
		"numa required":    {gpus: 2, notes: notes{podrequest.NUMAAffinityKey: "required"}, missing: never, stale: never},
		"a model":          {gpus: 2, notes: notes{podrequest.GPUModelKey: "V100"}, missing: never, stale: never},
		"memory":           {gpus: 2, notes: notes{podrequest.MinGPUMemoryKey: "1Gi"}, missing: never, stale: never},
		"none, but a model": {
			gpus: 2, notes: notes{podrequest.TopologyPolicyKey: "none", podrequest.GPUModelKey: "V100"},
			missing: never, stale: never,
		},
		"no GPU":                    {missing: neither, stale: neither},
		"no GPU, but numa required": {notes: notes{podrequest.NUMAAffinityKey: "required"}, missing: never, stale: never},
	}
	for _, state := range []placement.Reason{placement.NoGraph, placement.NodeReplaced, placement.StaleGraph, placement.UnreadableGraph} {
		for name, tc := range pods {
			t.Run(state.String()+"/"+name, func(t *testing.T) {
				r := newTestEnv(t, "dgx1-v100")
				r.unvouch(t, state)
				info, l := r.view(t)
				want := tc.missing
				if state == placement.StaleGraph || state == placement.UnreadableGraph {
					want = tc.stale
				}
				pod := schedtest.Pod("p").GPUs(tc.gpus).Annotations(tc.notes).Obj()
				for args := range 4 {
					d := demandOf(t, pod)
					d.AllowNoGraph, d.CountStale = args&1 != 0, args&2 != 0
					fits := want == neither || want == allow && d.AllowNoGraph || want == count && d.CountStale
					v := r.Nodes.Judge(d, info, l)
					if fits && v.Reason != placement.Fits || !fits && (v.Reason != state || !v.Never) {
						t.Errorf("allow %t, count %t: verdict %+v (%s), want that it fits: %t", d.AllowNoGraph, d.CountStale, v, v.Reason, fits)
					}
					a, reason := r.Allocations.Assume(d, pod, info, l)
					if a != nil || (reason == placement.Fits) != fits {
						t.Errorf("allow %t, count %t: Reserve chose %v, %q, want no choice, and that it fits: %t", d.AllowNoGraph, d.CountStale, a, reason, fits)
					}
				}
			})
		}
	}
}

// TestStaleGraphCounts: a stale graph still shows which devices are used. The node has 8 GPUs and a
// silent exporter.
func TestStaleGraphCounts(t *testing.T) {
	by := func(t *testing.T, r *testEnv, gpus int, pods ...*v1.Pod) placement.Reason {
		t.Helper()
		info, l := r.view(t, pods...)
		d := demandOf(t, schedtest.Pod("p").GPUs(gpus).Obj())
		d.CountStale = true
		return r.Nodes.Judge(d, info, l).Reason
	}
	tests := map[string]struct {
		before func(t *testing.T, r *testEnv) []*v1.Pod // the node fell silent
		free   int
	}{
		"nothing runs":  {func(*testing.T, *testEnv) []*v1.Pod { return nil }, 8},
		"a pod of ours": {func(t *testing.T, r *testEnv) []*v1.Pod { t.Helper(); return []*v1.Pod{r.placed(t, "q", 3)} }, 5},
		"a foreign pod": {func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			return []*v1.Pod{on(t, r.State, schedtest.Pod("q").GPUs(2).Obj(), "n")}
		}, 6},
		"a pod in doubt": {func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			r.placed(t, "q", 3)
			r.Binder.Attempt("q", "n").BindingBegan()
			r.Allocations.Forget("q", "n") // the scheduler's cache forgets it
			return nil
		}, 5},
		"a broken GPU": {func(t *testing.T, r *testEnv) []*v1.Pod {
			t.Helper()
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion, obj.Status.GPUHealth[2].Healthy = "2", false
			if _, err := r.Graphs.Apply(obj); err != nil {
				t.Fatal(err)
			}
			return nil
		}, 7},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pods := tc.before(t, r)
			r.PodDevices.leases.Drop(nodelease.ExporterPrefix + "n")
			if got := by(t, r, tc.free, pods...); got != placement.Fits {
				t.Errorf("%d GPUs: %q, want that it fits", tc.free, got)
			}
			if got := by(t, r, tc.free+1, pods...); got != placement.FewGPUs {
				t.Errorf("%d GPUs: %q, want %q", tc.free+1, got, placement.FewGPUs)
			}
		})
	}
	t.Run("a node without an agent is no other than with a graph", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		r.PodDevices.leases.Drop(nodelease.ExporterPrefix + "n")
		r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
		info, l := r.view(t)
		d := demandOf(t, schedtest.Pod("p").GPUs(2).Obj())
		d.CountStale, d.Unenforced = true, placement.RefuseUnenforced
		if v := r.Nodes.Judge(d, info, l); v.Reason != placement.NotEnforced {
			t.Errorf("verdict %q, want %q", v.Reason, placement.NotEnforced)
		}
	})
}

// placed returns a pod that got GPUs and is assumed on the node.
func (e *testEnv) placed(t *testing.T, name string, gpus int) *v1.Pod {
	t.Helper()
	pod := schedtest.Pod(name).GPUs(gpus).Obj()
	info, l := e.view(t)
	if _, reason := e.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
		t.Fatal(reason)
	}
	return on(t, e.State, pod, "n")
}

// TestCountedPodReconciliation: pods placed by count are reconciled when the graph is back. A pod without
// a choice is followed until kubelet's record has its devices.
func TestCountedPodReconciliation(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.PodDevices.leases.Drop(nodelease.ExporterPrefix + "n")
	byCount := on(t, r.State, schedtest.Pod("counted").GPUs(2).Obj(), "n")
	r.clock.now = r.clock.now.Add(time.Minute)
	r.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", r.clock.now, time.Hour), r.clock.now)

	info, l := r.view(t, byCount)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(7).Obj()), info, l); v.Reason == placement.Fits {
		t.Error("7 of 8 GPUs were given out beside a pod that has 2")
	}
	linked := demandOf(t, schedtest.Pod("p").GPUs(2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj())
	if v := r.Nodes.Judge(linked, info, l); v.Reason != placement.UnknownDevices {
		t.Errorf("a pod with link demands: %q, want %q", v.Reason, placement.UnknownDevices)
	}
	plain := schedtest.Pod("plain").GPUs(2).Obj()
	a, reason := r.Allocations.Assume(demandOf(t, plain), plain, info, l)
	if reason != placement.Fits || !a.Unconfirmed {
		t.Errorf("a pod without: %q, unconfirmed %t, want a choice that is marked unconfirmed", reason, a != nil && a.Unconfirmed)
	}
	r.Allocations.Forget("plain", "n")

	r.record(t, "counted", 0, 3)
	info, l = r.view(t, byCount)
	a, reason = r.Allocations.Assume(linked, schedtest.Pod("linked").GPUs(2).Obj(), info, l)
	if reason != placement.Fits || a.Unconfirmed {
		t.Fatalf("after the record: %q, unconfirmed %t, want a choice", reason, a != nil && a.Unconfirmed)
	}
	n := r.Nodes.Node("n")
	if got := a.Mask(testResource, n.Accels[0].Graph) & nvtopo.MaskOf(0, 3); got != 0 {
		t.Errorf("GPUs %v, which kubelet has given away, were chosen", got.Positions())
	}
}

// TestReplacedObject: no state of an earlier object is kept.
func TestReplacedObject(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.UID, obj.ResourceVersion, obj.Spec.LinkKinds[0].Class = "made-anew", "2", "NVLink9"
	if changed, err := r.Graphs.Apply(obj); !changed || err == nil {
		t.Fatalf("changed %t, %v; want the old object forgotten and the new one refused", changed, err)
	}
	info, l := r.view(t)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), info, l); v.Reason != placement.UnreadableGraph {
		t.Errorf("verdict %q, want %q", v.Reason, placement.UnreadableGraph)
	}
	r.Graphs.Remove("n", "made-anew")
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), info, l); v.Reason != placement.NoGraph {
		t.Errorf("verdict after its end %q, want %q", v.Reason, placement.NoGraph)
	}
}

// TestTopologyLoss: pods keep their GPUs while the topology is gone. The object of a running pod and of
// one that is being bound is deleted, and an equal one comes back.
func TestTopologyLoss(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	running := schedtest.Pod("running").GPUs(3).Obj()
	info, l := r.view(t)
	a, reason := r.Allocations.Assume(demandOf(t, running), running, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.Allocations.Forget("running", "n")
	running = on(t, r.State, schedtest.PodFrom(running).Annotation(allocation.Key, text).Obj(), "n")
	info, l = r.view(t, running)
	binding := schedtest.Pod("binding").GPUs(2).Obj()
	b, reason := r.Allocations.Assume(demandOf(t, binding), binding, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	held := a.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph) | b.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph)

	if !r.Graphs.Remove("n", "topology-n") {
		t.Fatal("the object was not removed")
	}
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(1).Obj()), info, l); v.Reason != placement.NoGraph {
		t.Errorf("verdict while it is gone %q, want %q", v.Reason, placement.NoGraph)
	}
	if _, err := r.Nodes.Annotations(b, false); err == nil {
		t.Error("a choice was described by a graph that is gone")
	}
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.UID, obj.ResourceVersion = types.UID("again"), "9"
	if _, err := r.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	r.Graphs.Remove("n", "topology-n") // the old object's end, whose event comes late
	info, l = r.view(t, running)
	p := schedtest.Pod("p").GPUs(3).Obj()
	c, reason := r.Allocations.Assume(demandOf(t, p), p, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	if both := c.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph) & held; both != 0 {
		t.Errorf("GPUs %v were given out twice", both.Positions())
	}
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("q").GPUs(1).Obj()), info, l); v.Reason != placement.FewGPUs {
		t.Errorf("verdict for a ninth GPU %q, want %q", v.Reason, placement.FewGPUs)
	}
}
