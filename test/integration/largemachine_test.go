// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// twentyGPUs returns a machine larger than any of the catalogue: switches 0 to 2 with four GPUs each on
// the first socket, 3 and 4 on the second; the first two and the last two GPUs of a switch are bridged.
func twentyGPUs(name string) (*nvtopo.Graph, error) {
	const switches, ports, onFirst, pcieGen, model = 5, 4, 3, 4, "NVIDIA A40"
	var gpus []nvtopo.GPU
	for i := range switches * ports {
		numa := 0
		if i/ports >= onFirst {
			numa = 1
		}
		gpus = append(gpus, nvtopo.GPU{
			UUID: fmt.Sprintf("GPU-%s-%d", name, i), Index: i, PCIBusID: fmt.Sprintf("0000:%02x:00.0", i+1),
			Model: model, Memory: 48 << 30, NUMANode: numa,
		})
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		for j := range i {
			level := nvtopo.PCIeSYS
			switch {
			case i/ports == j/ports:
				level = nvtopo.PCIePIX
			case gpus[i].NUMANode == gpus[j].NUMANode:
				level = nvtopo.PCIeNODE
			}
			class, err := nvtopo.ParseClass(level.String())
			if err != nil {
				return nil, err
			}
			if i/2 == j/2 {
				if class, err = nvtopo.ParseClass("NV4"); err != nil {
					return nil, err
				}
			}
			links[[2]int{j, i}] = nvtopo.NewLink(class, level, pcieGen, nvtopo.NVLinkPerLink(model), false)
		}
	}
	var nodes []nvtopo.NUMANode
	for i, list := range []string{"0-63", "64-127"} {
		cpus, err := nvtopo.ParseCPUList(list)
		if err != nil {
			return nil, err
		}
		distances := []int{10, 21}
		if i == 1 {
			distances = []int{21, 10}
		}
		nodes = append(nodes, nvtopo.NUMANode{ID: i, CPUs: cpus, Memory: 512 << 30, Distances: distances})
	}
	return nvtopo.NewGraph(gpus, nodes, nil, links)
}

// testLargeMachines fills machines of more than 8 GPUs. The expected rings follow from the links: on 20
// GPUs a bridge (4 x 14.06 GB/s), one switch (PIX), one socket (NODE), both (SYS); on a DGX-2 any pair
// has six links of 25 GB/s.
func (a *across) testLargeMachines(t *testing.T) {
	g, err := twentyGPUs("big")
	if err != nil {
		t.Fatal(err)
	}
	a.customNode(t, "big", g)
	if err := a.keepPublished(t, "big", g); err != nil {
		t.Fatal(err)
	}
	a.node(t, "dgx2", "dgx2")
	defer a.removeNodes(t, "big", "dgx2")
	rings := map[string]map[int]int64{ // node -> requested GPUs -> kB/s
		"big":  {2: 56_240_000, 4: 24_000_000, 8: 20_400_000, 16: 12_000_000},
		"dgx2": {2: 150_000_000, 4: 150_000_000, 8: 150_000_000, 16: 150_000_000},
	}
	for node, wantRing := range rings {
		graph := a.graphs[node]
		tables := nvtopo.NewTables(graph, nvtopo.DefaultWeights())
		for _, p := range bothWrites {
			t.Run(node+" "+p, func(t *testing.T) {
				for _, sizes := range [][]int{{16}, {2, 4, 8, 2}} {
					free := graph.Healthy()
					for _, k := range sizes {
						pod := gpuPod(a.freshName("large"), p, k).NodeSelector(host(node)).Obj()
						a.create(t, pod)
						set, ring := ringOf(t, a.bound(t, pod.Name), graph)
						if want, _ := tables.Pick(free, free, k, nvtopo.Constraint{}); set != want {
							t.Errorf("%d of free %v: got %v, want %v", k, free.Positions(), set.Positions(), want.Positions())
						}
						if ring != wantRing[k] {
							t.Errorf("%d of free %v: GPUs %v have a ring of %d kB/s, want %d", k, free.Positions(), set.Positions(), ring, wantRing[k])
						}
						free &^= set
					}
					a.dropAll(t)
				}
			})
		}
	}
	t.Run("wherever it is best", func(t *testing.T) {
		for _, k := range []int{16, 8, 4} {
			pod := gpuPod(a.freshName("large"), bindingProfile, k).Obj()
			a.create(t, pod)
			got := a.bound(t, pod.Name)
			t.Logf("%d GPUs on %s", k, got.Spec.NodeName)
			tables := nvtopo.NewTables(a.graphs[got.Spec.NodeName], nvtopo.DefaultWeights())
			if set, ring := ringOf(t, got, tables.Graph()); ring != tables.Best(k) {
				t.Errorf("%d GPUs: %v of node %s have a ring of %d kB/s, the best there is %d",
					k, set.Positions(), got.Spec.NodeName, ring, tables.Best(k))
			}
		}
		a.dropAll(t)
	})
}

// searchable is the largest number of GPUs for which the brute force behind choiceOf is fast.
const searchable = 8

// ringOf reads a choice and the bottleneck of the written ring, in kB/s.
func ringOf(t *testing.T, pod *v1.Pod, g *nvtopo.Graph) (nvtopo.Mask, int64) {
	t.Helper()
	a, err := allocation.Of(pod, pod.Spec.NodeName)
	if err != nil || len(a.Containers) != 1 {
		t.Fatalf("pod %s (%s) on %s: its choice is %+v (%v)", pod.Name, pod.UID, pod.Spec.NodeName, a, err)
	}
	var order []int
	var set nvtopo.Mask
	for _, id := range a.Containers[0].GPUs {
		at := slices.IndexFunc(g.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id })
		if at < 0 {
			t.Fatalf("pod %s: the node has no GPU %s", pod.Name, id)
		}
		order = append(order, at)
		set |= nvtopo.MaskOf(at)
	}
	if got, want := set.Len(), int(pod.Spec.Containers[0].Resources.Requests.Name(gpuResource, "").Value()); got != want || len(order) != want {
		t.Fatalf("pod %s has GPUs %v, wants %d", pod.Name, order, want)
	}
	if len(order) <= searchable {
		choiceOf(t, pod, g)
	}
	return set, oracle.Bottleneck(g, order).Bandwidth
}
