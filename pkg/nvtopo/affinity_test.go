// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostGraph has four NUMA nodes of four cores with two threads each (threads c
// and c+16), and a fifth without CPUs; GPU 0 and 1 are on nodes 0 and 1, GPU 2
// on the fifth, GPU 3 on an unknown one.
func hostGraph(tb testing.TB) *Graph {
	tb.Helper()
	var nodes []NUMANode
	rows := [][]int{{10, 12, 32, 32, 80}, {12, 10, 32, 32, 80}, {32, 32, 10, 12, 40}, {32, 32, 12, 10, 42}, {80, 80, 40, 42, 10}}
	for id, row := range rows {
		n := NUMANode{ID: id, Distances: row}
		for c := 4 * id; c < 4*id+4 && id < 4; c++ {
			n.CPUs = n.CPUs.Union(CPUSet{c, c + 16})
			n.Siblings = append(n.Siblings, CPUSet{c, c + 16})
		}
		nodes = append(nodes, n)
	}
	links := map[[2]int]Link{}
	for i := range 4 {
		for j := range i {
			links[[2]int{j, i}] = NewLink(Class{Kind: KindPCIe, PCIe: PCIeSYS}, PCIeSYS, 0, 0, false)
		}
	}
	gpus := []GPU{{NUMANode: 0}, {NUMANode: 1}, {NUMANode: 4, CPUs: CPUSet{8, 9}}, {NUMANode: UnknownNUMA, CPUs: CPUSet{1, 2}}}
	g, err := NewGraph(gpus, nodes, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func cpus(tb testing.TB, list string) CPUSet {
	tb.Helper()
	s, err := ParseCPUList(list)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestAffinity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  Mask
		want Affinity
	}{
		"one GPU":                           {set: MaskOf(0), want: Affinity{NUMANodes: []int{0}, CPUs: cpus(t, "0-3,16-19"), Distance: 10}},
		"two neighbouring nodes":            {set: MaskOf(0, 1), want: Affinity{NUMANodes: []int{0, 1}, CPUs: cpus(t, "0-7,16-23"), Distance: 12}},
		"a node without CPUs":               {set: MaskOf(2), want: Affinity{NUMANodes: []int{4}, CPUs: cpus(t, "8,9"), Distance: 10}},
		"an unknown node":                   {set: MaskOf(1, 3), want: Affinity{NUMANodes: []int{1}, Unknown: MaskOf(3), CPUs: cpus(t, "1-2,4-7,20-23"), Distance: 255}},
		"positions the graph does not have": {set: MaskOf(40), want: Affinity{Distance: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, hostGraph(t).Affinity(tc.set)); diff != "" {
				t.Errorf("affinity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNearestCPUs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes []int
		free  string
		n     int
		want  string
	}{
		"whole cores of the set's node":                  {nodes: []int{1}, free: "0-31", n: 4, want: "4-5,20-21"},
		"an odd number splits one core":                  {nodes: []int{0}, free: "0-31", n: 3, want: "0-1,16"},
		"a thread of a core partly taken before a split": {nodes: []int{0}, free: "1-31", n: 3, want: "1,16-17"},
		"whole cores before a core partly taken":         {nodes: []int{0}, free: "1-31", n: 2, want: "1,17"},
		"the set's nodes in order":                       {nodes: []int{1, 0}, free: "0-31", n: 10, want: "0-4,16-20"},
		"the nearest other node next":                    {nodes: []int{0}, free: "0-31", n: 10, want: "0-4,16-20"},
		"nearest to any of the set's nodes":              {nodes: []int{3}, free: "0-7,16-23,8,24", n: 4, want: "0,8,16,24"},
		"a thread here before a whole core there":        {nodes: []int{0}, free: "16,4-7,20-23", n: 2, want: "4,16"},
		"a node without CPUs takes the nearest":          {nodes: []int{4}, free: "0-31", n: 2, want: "8,24"},
		"an unknown node takes the lowest":               {nodes: []int{UnknownNUMA}, free: "2-31", n: 2, want: "2,18"},
		"no node at all takes the lowest":                {free: "0-31", n: 2, want: "0,16"},
		"CPUs of no node come last":                      {nodes: []int{0}, free: "0,16,40-41", n: 3, want: "0,16,40"},
		"all that is free":                               {nodes: []int{2}, free: "0,9,31", n: 3, want: "0,9,31"},
		"fewer free than asked":                          {nodes: []int{2}, free: "0,9", n: 3, want: ""},
		"none asked":                                     {nodes: []int{2}, free: "0,9", n: 0, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := hostGraph(t).NearestCPUs(tc.nodes, cpus(t, tc.free), tc.n)
			if got.String() != tc.want {
				t.Errorf("CPUs %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSpreadCPUs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes []int
		free  string
		n     int
		want  string
	}{
		"one node":                              {nodes: []int{1}, free: "0-31", n: 4, want: "4-5,20-21"},
		"equal parts of two nodes":              {nodes: []int{0, 1}, free: "0-31", n: 8, want: "0-1,4-5,16-17,20-21"},
		"the later node gets what is over":      {nodes: []int{0, 1}, free: "0-31", n: 3, want: "0,4,20"},
		"fewer CPUs than nodes":                 {nodes: []int{0, 1, 2}, free: "0-31", n: 2, want: "4,8"},
		"a full node's part is its neighbour's": {nodes: []int{0, 2}, free: "6-15,17-31", n: 8, want: "8-9,17-20,24-25"},
		"no node takes the lowest":              {free: "0-31", n: 2, want: "0,16"},
		"fewer free than asked":                 {nodes: []int{0, 1}, free: "0,4", n: 3, want: ""},
		"none asked":                            {nodes: []int{0, 1}, free: "0,4", n: 0, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := hostGraph(t).SpreadCPUs(tc.nodes, cpus(t, tc.free), tc.n)
			if got.String() != tc.want {
				t.Errorf("CPUs %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNearestCPUsWithoutSiblings(t *testing.T) {
	t.Parallel()
	g, err := NewGraph([]GPU{{}}, []NUMANode{{ID: 0, CPUs: CPUSet{0, 1, 2}}, {ID: 1, CPUs: CPUSet{3, 4}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := g.NearestCPUs([]int{1}, CPUSet{0, 1, 3, 4}, 3); got.String() != "0,3-4" {
		t.Errorf("CPUs %q, want 0,3-4", got)
	}
}

// TestSpreadCPUsParts: SpreadCPUs takes one part after the other. It compares with one node's part at a
// time, of the CPUs that the parts before have left.
func TestSpreadCPUsParts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 4))
	g := hostGraph(t)
	all := append(cpus(t, "0-31"), 40, 41, 70) // some are of no node
	for range 20_000 {
		free := slices.Clone(all)
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		free = NewCPUSet(free[:r.IntN(len(free)+1)]...)
		nodes := r.Perm(len(g.NUMANodes))[:1+r.IntN(len(g.NUMANodes))]
		n := r.IntN(len(all) + 2)
		var want CPUSet
		if n > 0 && n <= len(free) {
			rest := free
			for i, id := range nodes {
				part := g.NearestCPUs([]int{id}, rest, (n-len(want))/(len(nodes)-i))
				want, rest = want.Union(part), rest.Minus(part)
			}
		}
		if got := g.SpreadCPUs(nodes, free, n); !slices.Equal(got, want) {
			t.Fatalf("%d of %v near nodes %v: got %v, want %v", n, free, nodes, got, want)
		}
	}
}

func BenchmarkSpreadCPUs(b *testing.B) {
	g, free := hostGraph(b), cpus(b, "0-31")
	b.ReportAllocs()
	for b.Loop() {
		if got := g.SpreadCPUs([]int{0, 1}, free, 16); len(got) != 16 {
			b.Fatalf("%d CPUs, want 16", len(got))
		}
	}
}
