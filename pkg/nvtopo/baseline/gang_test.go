// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// spines is a fabric of two levels: the free GPUs of the nodes by spine and rack.
type spines [][][]int

func (s spines) build(tb testing.TB) (*fabric.Tree, []int) {
	tb.Helper()
	spec := &fabric.Spec{Levels: []fabric.Level{{Name: "spine"}, {Name: "rack"}}}
	var free []int
	for i, racks := range s {
		for j, nodes := range racks {
			for k, n := range nodes {
				path := []string{fmt.Sprint("s", i), fmt.Sprint("r", j)}
				spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: fmt.Sprintf("n-%d-%d-%d", i, j, k), Path: path})
				free = append(free, n)
			}
		}
	}
	t, faults, err := fabric.NewTree(spec)
	if err != nil || len(faults) > 0 {
		tb.Fatal(err, faults)
	}
	return t, free
}

// whole is so many nodes of 8 free GPUs.
func whole(n int) []int { return slices.Repeat([]int{8}, n) }

// TestGangRuleChoices: gang rules choose as the systems that they imitate do.
func TestGangRuleChoices(t *testing.T) {
	// Nodes are numbered in the order of the lines.
	cases := map[string]struct {
		free       spines
		gpus, pods int
		want       map[string][]int // by rule
	}{
		"the rack with the fewest slots that suffice": {
			free: spines{{whole(4), whole(2), whole(3)}}, gpus: 8, pods: 2,
			want: map[string][]int{"kueue": {4, 5}, "koordinator": {4, 5}, "volcano": {4, 5}, "first-fit": {0, 1}},
		},
		"free GPUs that are no slots count for the sum only": {
			free: spines{{{8, 8}, {1, 1, 1, 1, 1, 1, 1, 1}}}, gpus: 8, pods: 1,
			want: map[string][]int{"kueue": {0}, "koordinator": {0}, "volcano": {0}, "first-fit": {0}},
		},
		"the spine that is tightest, and its largest racks first": {
			free: spines{{whole(4), whole(1), whole(1)}, {whole(3), whole(3)}}, gpus: 8, pods: 5,
			// Kueue and Koordinator keep the first of equal spines. After four one of one is left.
			want: map[string][]int{"kueue": {0, 1, 2, 3, 4}, "koordinator": {0, 1, 2, 3, 4}, "volcano": {0, 1, 2, 3, 4}, "first-fit": {0, 1, 2, 3, 4}},
		},
		"a rest of one goes to a whole rack": {
			free: spines{{whole(4), whole(3), whole(1)}}, gpus: 8, pods: 5,
			// Kueue takes the tightest rack for the rest, Koordinator the largest.
			want: map[string][]int{"kueue": {0, 1, 2, 3, 7}, "koordinator": {0, 1, 2, 3, 4}, "volcano": {0, 1, 2, 3, 4}, "first-fit": {0, 1, 2, 3, 4}},
		},
		"several spines, whose racks Kueue puts into one pool": {
			free: spines{{whole(2), whole(2)}, {whole(3), whole(3), whole(1)}}, gpus: 8, pods: 8,
			want: map[string][]int{
				// Both spines; of all racks 3, 3, and of two and two the first.
				"kueue":       {4, 5, 6, 7, 8, 9, 0, 1},
				"koordinator": {4, 5, 6, 7, 8, 9, 10, 0},
				"volcano":     {0, 1, 2, 3, 4, 5, 6, 7}, "first-fit": {0, 1, 2, 3, 4, 5, 6, 7},
			},
		},
		"nodes that are partly used": {
			free: spines{{{8, 4, 4}, {2, 8, 8}}}, gpus: 4, pods: 3,
			want: map[string][]int{
				"kueue":       {0, 0, 1},
				"koordinator": {0, 0, 1},
				"volcano":     {1, 2, 0}, "first-fit": {0, 0, 1},
			},
		},
		"three racks where two would do: slots are all that counts": {
			free: spines{{whole(4), whole(1), whole(1)}, {whole(3), whole(3)}}, gpus: 8, pods: 6,
			want: map[string][]int{
				"kueue": {0, 1, 2, 3, 4, 5}, "koordinator": {0, 1, 2, 3, 4, 5}, "volcano": {0, 1, 2, 3, 4, 5}, "first-fit": {0, 1, 2, 3, 4, 5},
			},
		},
		"the spine with the fewest slots, in it four and one": {
			free: spines{{whole(4), whole(3), whole(2)}, {whole(4), whole(1), whole(1)}}, gpus: 8, pods: 5,
			want: map[string][]int{
				"kueue": {9, 10, 11, 12, 13}, "koordinator": {9, 10, 11, 12, 13}, "volcano": {9, 10, 11, 12, 13}, "first-fit": {0, 1, 2, 3, 4},
			},
		},
		"the large rack first, and of the small one the rest": {
			free: spines{{whole(8), whole(4)}}, gpus: 8, pods: 11,
			want: map[string][]int{
				"kueue": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "koordinator": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
				"volcano": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "first-fit": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
			},
		},
		"three free nodes in each of two racks": {
			free: spines{{{8, 8, 8, 0}, {8, 8, 8, 0}}}, gpus: 8, pods: 4,
			want: map[string][]int{"kueue": {0, 1, 2, 4}, "koordinator": {0, 1, 2, 4}, "volcano": {0, 1, 2, 4}, "first-fit": {0, 1, 2, 4}},
		},
		"four nodes where two would do": {
			free: spines{{{4, 4, 4, 4}, {8, 8, 0, 0}}}, gpus: 4, pods: 4,
			want: map[string][]int{"kueue": {0, 1, 2, 3}, "koordinator": {0, 1, 2, 3}, "volcano": {0, 1, 2, 3}, "first-fit": {0, 1, 2, 3}},
		},
		"more than there is": {
			free: spines{{whole(2)}}, gpus: 8, pods: 3,
			want: map[string][]int{"kueue": nil, "koordinator": nil, "volcano": nil, "first-fit": nil},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tree, free := tc.free.build(t)
			for _, r := range gangRules(tree.Len()) {
				got, ok := r.Place(tree, free, tc.gpus, tc.pods)
				if want := tc.want[r.Name()]; cmp.Diff(want, got) != "" || ok != (want != nil) {
					t.Errorf("%s: nodes %v, %v, want %v", r.Name(), got, ok, want)
				}
			}
		})
	}
}

// gangRules are all rules, first fit in the order of the tree.
func gangRules(nodes int) []GangRule {
	order := make([]int, nodes)
	for i := range order {
		order[i] = i
	}
	return []GangRule{Kueue(), Koordinator(), Volcano(), FirstFit(order)}
}

// TestGangRuleCounts: gang rules place every gang that fits by count.
func TestGangRuleCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var s spines
		for range 1 + rng.IntN(3) {
			var racks [][]int
			for range 1 + rng.IntN(3) {
				nodes := make([]int, 1+rng.IntN(4))
				for i := range nodes {
					nodes[i] = rng.IntN(9)
				}
				racks = append(racks, nodes)
			}
			s = append(s, racks)
		}
		tree, free := s.build(t)
		gpus := 1 << rng.IntN(4)
		room := 0
		for _, f := range free {
			room += f / gpus
		}
		pods := 1 + rng.IntN(room+2)
		for _, r := range gangRules(tree.Len()) {
			nodes, ok := r.Place(tree, free, gpus, pods)
			if ok != (pods <= room) {
				t.Fatalf("%s, %v, %d pods of %d: placed %v, but there is room for %d", r.Name(), s, pods, gpus, ok, room)
			}
			if !ok {
				continue
			}
			left := slices.Clone(free)
			for _, n := range nodes {
				left[n] -= gpus
			}
			if len(nodes) != pods || slices.Min(left) < 0 {
				t.Fatalf("%s, %v: %d pods of %d on nodes %v", r.Name(), s, pods, gpus, nodes)
			}
		}
	}
}
