// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// TestGroupCounterMemory: a group counter caches correct results only. A counter that has seen many nodes
// returns the same for the next as a new one. The nodes differ in machine, health and kubelet.
func TestGroupCounterMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 11))
	now := time.Unix(1_700_000_000, 0)
	kept := NewGroupCounter(gpu, nvtopo.Class{})
	var machines []*usage.Node
	for _, kind := range []string{"dgx1-v100", "dgx-h100", "a100-pcie-4-bridged"} {
		machines = append(machines, nodeOf(t, kind))
	}
	policies := []string{"none", "restricted", "single-numa-node"}
	few := func() (m nvtopo.Mask) { // each GPU once in eight
		for i := range nvtopo.FullMask(8).All() {
			if rng.IntN(8) == 0 {
				m |= nvtopo.MaskOf(i)
			}
		}
		return m
	}
	linked := map[int]bool{}
	for round := range 400 {
		machine := machines[rng.IntN(len(machines))]
		n, accel := *machine, *machine.Accels[0]
		n.Agent = nodelease.NewTable(0).Get(nodelease.AgentPrefix + n.Name) // there is none
		all := nvtopo.FullMask(accel.Graph.Len())
		accel.Healthy = all &^ few()
		accel.Degraded = accel.Healthy & few()
		n.Accels = []*usage.Accel{&accel}
		policy := rng.IntN(len(policies))
		kubelet, err := usage.NewKubelet(&n, &v1alpha1.Kubelet{TopologyManagerPolicy: policies[policy], Scope: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		if n.Kubelet = kubelet; kubelet != nil {
			kubelet.Kind = uint64(policy)
		}
		n.Complete()
		for _, k := range GroupSizes() {
			fresh := NewGroupCounter(gpu, nvtopo.Class{})
			got, want := kept.Capacity(&n, 0, k, now), fresh.Capacity(&n, 0, k, now)
			if got != want {
				t.Fatalf("round %d: %d GPUs, healthy %v, degraded %v, kubelet %s: capacity %+v, want %+v", round, k, accel.Healthy, accel.Degraded, policies[policy], got, want)
			}
			linked[want.Linked] = true
			class, ok := kept.BestClass(accel.Tables, k)
			if wantClass, wantOK := classOfBest(accel.Tables, k); class != wantClass || ok != wantOK {
				t.Fatalf("round %d: %d GPUs: best class %v, %t, want %v, %t", round, k, class, ok, wantClass, wantOK)
			}
		}
	}
	if len(linked) < 5 || len(kept.capacities) > 4*400-4 {
		t.Errorf("%d different capacities of %d states: want some, and some states twice", len(linked), len(kept.capacities))
	}
}
