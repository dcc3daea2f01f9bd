// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

const gpu = "nvidia.com/gpu"

// nodeOf returns a node with a machine of the catalogue.
func nodeOf(t *testing.T, kind string) *usage.Node {
	t.Helper()
	return editedNode(t, kind, func(*nvtopo.Graph) {})
}

// editedNode returns a node with a machine of the catalogue whose graph was edited.
func editedNode(t *testing.T, kind string, edit func(g *nvtopo.Graph)) *usage.Node {
	t.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	edit(g)
	tables, _ := nvtopo.NewRegistry(nvtopo.DefaultWeights()).Share(g)
	n := &usage.Node{
		Name: "n", Resources: []string{gpu}, NUMA: g,
		Accels: []*usage.Accel{{Resource: gpu, Graph: tables.Graph(), Tables: tables, Healthy: g.Healthy()}},
	}
	n.Complete()
	return n
}

// TestCheckChoose: Check and Choose agree, on random usages, for random requests.
func TestCheckChoose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	policies := podrequest.AllPolicies()
	fitted := 0
	for _, kind := range []string{"dgx1-v100", "a100-pcie-4-bridged"} {
		n := nodeOf(t, kind)
		full := nvtopo.FullMask(n.NUMA.Len())
		for range 2000 {
			u := *n.Idle
			u.Used = []nvtopo.Mask{nvtopo.Mask(rng.Uint64()) & full}
			k := 1 + rng.IntN(n.NUMA.Len())
			r := &podrequest.Request{
				UID: "p", Resources: []podrequest.ResourceRequest{{Name: gpu, Count: k}},
				Containers: []podrequest.Container{{Name: "main", GPUs: []int{k}}},
				Constraint: nvtopo.Constraint{Policy: policies[rng.IntN(len(policies))]},
			}
			promise := Check(&u, r)
			a, reason := Choose(&u, r, false)
			if promise != reason || (a != nil) != (reason == Fits) {
				t.Fatalf("%s with %v used, %d GPUs: Check says %q, Choose %q", kind, u.Used[0], k, promise, reason)
			}
			if a == nil {
				continue
			}
			fitted++
			set := a.Mask(gpu, n.Accels[0].Graph)
			if set.Len() != k || set&u.Used[0] != 0 || a.Node != "n" || a.PodUID != "p" {
				t.Fatalf("%s with %v used, %d GPUs: %+v", kind, u.Used[0], k, a)
			}
			numa := slices.DeleteFunc(n.NUMA.NUMAOf(set), func(id int) bool { return id == nvtopo.UnknownNUMA })
			if !slices.Equal(a.NUMANodes, numa) {
				t.Fatalf("NUMA nodes %v of %v, want %v", a.NUMANodes, set, numa)
			}
		}
	}
	if fitted < 500 {
		t.Errorf("only %d requests fitted", fitted)
	}
}

// TestRingShare: on a DGX-1, where pairs of GPUs have two NVLinks, one or none.
func TestRingShare(t *testing.T) {
	n := nodeOf(t, "dgx1-v100")
	tests := map[string]struct {
		gpus   []int
		wantOK bool
		want   float64
	}{
		"two NVLinks":           {[]int{0, 3}, true, 1},
		"one NVLink":            {[]int{0, 1}, true, 0.5},
		"a ring over all eight": {[]int{0, 1, 2, 3, 4, 5, 6, 7}, true, 1},
		"one GPU has no ring":   {[]int{0}, false, 0},
		"no GPU":                {nil, false, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := allocation.Container{Name: "main", Resource: gpu}
			for _, at := range tc.gpus {
				c.GPUs = append(c.GPUs, n.Accels[0].Graph.GPUs[at].UUID)
			}
			got, ok := RingShare(n.Idle, &allocation.Allocation{Node: "n", Containers: []allocation.Container{c}})
			if ok != tc.wantOK || got < tc.want-0.01 || got > tc.want+0.01 {
				t.Errorf("share %v, %v; want %v, %v", got, ok, tc.want, tc.wantOK)
			}
		})
	}
}

// TestContainersOnOneNUMANode: where containers can have as fast rings on fewer NUMA nodes, they do.
func TestContainersOnOneNUMANode(t *testing.T) {
	n := nodeOf(t, "hgx-a100-8")
	tests := map[string]struct {
		gpus []int // by container
		want [][]int
	}{
		"four between two twos": {[]int{2, 4, 2}, [][]int{{0}, {1}, {0}}},
		"three and five":        {[]int{3, 5}, [][]int{{0}, {0, 1}}},
		"one, four and three":   {[]int{1, 4, 3}, [][]int{{0}, {1}, {0}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &podrequest.Request{
				UID: "p", MilliCPU: 8000, Affinity: podrequest.AffinityRequired,
				Resources: []podrequest.ResourceRequest{{Name: gpu, Count: 8}},
			}
			for i, k := range tc.gpus {
				r.Containers = append(r.Containers, podrequest.Container{Name: strconv.Itoa(i), GPUs: []int{k}})
			}
			a, reason := Choose(n.Idle, r, false)
			if reason != Fits {
				t.Fatalf("refused: %s", reason)
			}
			var got [][]int
			for i := range a.Containers {
				got = append(got, a.Containers[i].NUMANodes)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("NUMA nodes of the containers (-want,+got)\n%s", diff)
			}
		})
	}
}
