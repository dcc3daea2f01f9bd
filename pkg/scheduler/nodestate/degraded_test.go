// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// withHealth gives the node this health, by position.
func (e *testEnv) withHealth(t *testing.T, kind, version string, unhealthy, degraded nvtopo.Mask) {
	t.Helper()
	obj := topologyOf(t, "n", kind)
	obj.ResourceVersion = version
	for i := range obj.Status.GPUHealth {
		h := &obj.Status.GPUHealth[i]
		h.Healthy, h.Degraded = !unhealthy.Has(i), degraded.Has(i)
	}
	if _, err := e.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
}

// bestSound is the specification: degraded GPUs are in no set, and a single GPU is the lowest of them
// first.
func bestSound(o *oracle.Oracle, healthy, degraded, free nvtopo.Mask, k int, c nvtopo.Constraint) nvtopo.Mask {
	alone := free & healthy & degraded
	if k == 1 && alone != 0 {
		return nvtopo.MaskOf(alone.First())
	}
	free = free & healthy &^ degraded
	set, _ := o.Best(free, free, k, c)
	return set
}

// TestDegradedGPUs: degraded GPUs are assigned alone only.
func TestDegradedGPUs(t *testing.T) {
	const kind = "dgx1-v100"
	r := newTestEnv(t, kind)
	graph := r.Nodes.Node("n").Accels[0].Graph
	o := oracle.New(graph)
	rng := rand.New(rand.NewPCG(5, 11))
	some := func(n int) (m nvtopo.Mask) {
		for range rng.IntN(n) {
			m |= 1 << rng.IntN(graph.Len())
		}
		return m
	}
	type notes = map[string]string
	demands := []struct {
		notes notes
		c     nvtopo.Constraint
	}{
		{},
		{notes: notes{podrequest.MinLinkKey: "NVLINK"}, c: nvtopo.Constraint{MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}}},
		{notes: notes{podrequest.TopologyPolicyKey: "single-numa-node"}, c: nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode}},
	}
	served := map[string]int{}
	for step := range 3000 {
		unhealthy, degraded, used := some(3), some(5), some(5)
		r.withHealth(t, kind, strconv.Itoa(step+2), unhealthy, degraded)
		var pods []*v1.Pod
		if used != 0 {
			pods = append(pods, on(t, r.State, schedtest.Pod("holder").GPUs(used.Len()).Obj(), "n", used.Positions()...))
		}
		info, l := r.view(t, pods...)
		d := demands[rng.IntN(len(demands))]
		pod := schedtest.Pod(fmt.Sprint("p", step)).GPUs(1 + rng.IntN(5)).Annotations(d.notes).Obj()
		k := int(pod.Spec.Containers[0].Resources.Limits.Name(testResource, "").Value())
		switch rng.IntN(4) {
		case 0: // it has the app's GPU before the app
			pod.Spec.InitContainers = []v1.Container{container("init", 1)}
		case 1:
			pod.Spec.Containers = append(pod.Spec.Containers, container("second", 1))
			k++
		}
		healthy := nvtopo.FullMask(graph.Len()) &^ unhealthy
		want := bestSound(o, healthy, degraded, nvtopo.FullMask(graph.Len())&^used, k, d.c)
		situation := fmt.Sprintf("step %d: %d GPUs %v, unhealthy %v, degraded %v, used %v", step, k, d.notes,
			unhealthy.Positions(), degraded.Positions(), used.Positions())

		demand := demandOf(t, pod)
		verdict := r.Nodes.Judge(demand, info, l)
		if (verdict.Reason == placement.Fits) != (want != 0) {
			t.Fatalf("%s: Filter says %q, by brute force the set is %v", situation, verdict.Reason, want.Positions())
		}
		m := nodeindex.Machine{
			Tables: r.Nodes.Node("n").Accels[0].Tables, Healthy: healthy, Free: healthy &^ used, Degraded: healthy & degraded,
		}
		offer, ok := m.Offer(&nodeindex.Demand{GPUs: k, Constraint: d.c})
		if ok != (want != 0) || ok && offer.Set != want {
			t.Fatalf("%s: the index offers %v, want %v", situation, offer.Set.Positions(), want.Positions())
		}
		if want == 0 {
			served["refused"]++
			continue
		}
		if rated, ok := placement.Rate(r.Nodes.View(demand, info, l), demand.Request); !ok || rated != offer {
			t.Fatalf("%s: rated %+v, the index offers %+v", situation, rated, offer)
		}
		a, reason := r.Allocations.Assume(demand, pod, info, l)
		if reason != placement.Fits {
			t.Fatalf("%s: Reserve says %q", situation, reason)
		}
		if got, _ := graph.Positions(a.GPUs(testResource)); got != want {
			t.Fatalf("%s: Reserve took %v, want %v", situation, got.Positions(), want.Positions())
		}
		r.Allocations.Forget(pod.UID, "n")
		switch {
		case want&degraded != 0:
			served["alone"]++
		case degraded != 0:
			served["beside degraded"]++
		}
	}
	for _, what := range []string{"refused", "alone", "beside degraded"} {
		if served[what] < 100 {
			t.Errorf("only %d of 3000 pods were %s", served[what], what)
		}
	}
}

// TestDegradedSetRefusal: the refusal of a set that needs degraded GPUs names that reason.
func TestDegradedSetRefusal(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.withHealth(t, "dgx1-v100", "2", 0, nvtopo.MaskOf(1, 2))
	info, l := r.view(t)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(7).Obj()), info, l); v.Reason != placement.DegradedGPUs || !v.Never {
		t.Errorf("seven of six intact GPUs: %q, never %t; want %q, and that nothing that ends there would help", v.Reason, v.Never, placement.DegradedGPUs)
	}
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(9).Obj()), info, l); v.Reason != placement.FewGPUs {
		t.Errorf("nine of eight GPUs: %q, want %q", v.Reason, placement.FewGPUs)
	}
}

// TestDegradedGPUWithoutCPUs: the refusal of a degraded GPU without CPUs beside it names that reason.
func TestDegradedGPUWithoutCPUs(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.withHealth(t, "dgx1-v100", "2", 0xf0, nvtopo.MaskOf(0, 1, 2, 3))
	info, l := r.view(t)
	pod := schedtest.Pod("p").GPUs(1).CPU("41").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").
		Annotation(podrequest.NUMAAffinityKey, "required").Obj()
	if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != placement.NoNUMACPU {
		t.Errorf("41 CPUs beside one GPU: %q, want %q", v.Reason, placement.NoNUMACPU)
	}
	r.withHealth(t, "dgx1-v100", "3", 0, nvtopo.MaskOf(0, 1, 2, 3))
	pod = schedtest.Pod("p").GPUs(1).CPU("8").Annotation(podrequest.GPUModelKey, "H100").Obj()
	if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != placement.FewSuitableGPUs {
		t.Errorf("another model: %q, want %q", v.Reason, placement.FewSuitableGPUs)
	}
}

// TestDegradedGPUCost: degraded GPUs add no cost to Filter.
func TestDegradedGPUCost(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.withHealth(t, "dgx1-v100", "2", nvtopo.MaskOf(7), nvtopo.MaskOf(1, 2))
	info, l := r.view(t)
	for gpus := 1; gpus <= 5; gpus++ {
		d := demandOf(t, schedtest.Pod("p").GPUs(gpus).Obj())
		if v := r.Nodes.Judge(d, info, l); v.Reason != placement.Fits {
			t.Fatalf("%d GPUs: %q", gpus, v.Reason)
		}
		if n := testing.AllocsPerRun(100, func() { r.Nodes.Judge(d, info, l) }); n != 0 {
			t.Errorf("%d GPUs: %v allocations, want none", gpus, n)
		}
	}
}

// TestIntactGPUWakeUp: pods waiting for an intact GPU are woken.
func TestIntactGPUWakeUp(t *testing.T) {
	state := New(testConfig(), &tickClock{})
	apply := func(version string, degraded, unhealthy bool) bool {
		t.Helper()
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.ResourceVersion = version
		obj.Status.GPUHealth[3].Degraded, obj.Status.GPUHealth[3].Healthy = degraded, !unhealthy
		c, err := state.Nodes.topologies.Apply(obj)
		if err != nil {
			t.Fatal(err)
		}
		return c.Freed
	}
	apply("1", false, false)
	for i, step := range []struct {
		what                string
		degraded, unhealthy bool
		want                bool
	}{
		{"it becomes degraded", true, false, false},
		{"it is lost", false, true, false},
		{"it comes back degraded, which single pods wait for", true, false, true},
		{"it is whole again", false, false, true},
	} {
		if got := apply(strconv.Itoa(i+2), step.degraded, step.unhealthy); got != step.want {
			t.Errorf("%s: waiting pods woken %t, want %t", step.what, got, step.want)
		}
	}
}
