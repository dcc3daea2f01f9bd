// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// cliques is the most disjoint sets of k of some GPUs of which any two have a link.
func cliques(g *nvtopo.Graph, free nvtopo.Mask, k int, atLeast nvtopo.Class) int {
	if free.Len() < k {
		return 0
	}
	first := nvtopo.MaskOf(free.First())
	rest := free &^ first
	most := cliques(g, rest, k, atLeast) // the first one is in no set
	for s := rest; ; s = (s - 1) & rest {
		if set := s | first; set.Len() == k && clique(g, set, atLeast) {
			most = max(most, 1+cliques(g, free&^set, k, atLeast))
		}
		if s == 0 {
			return most
		}
	}
}

func clique(g *nvtopo.Graph, set nvtopo.Mask, atLeast nvtopo.Class) bool {
	for i := range set.All() {
		for j := range set.All() {
			if i != j && !g.Link(i, j).Class.AtLeast(atLeast) {
				return false
			}
		}
	}
	return true
}

// partners is how many GPUs have such a link to another one of the set.
func partners(g *nvtopo.Graph, set nvtopo.Mask, atLeast nvtopo.Class) (n int) {
	for i := range set.All() {
		for j := range set.All() {
			if i != j && g.Link(i, j).Class.AtLeast(atLeast) {
				n++
				break
			}
		}
	}
	return n
}

// TestMinLinkSupply compares what a view with a least link counts with all sets of GPUs there are.
func TestMinLinkSupply(t *testing.T) {
	machines := []string{"hgx-a100-4", "a100-pcie-4-bridged", "power9-v100-4", "dgx1-v100", "rtx4090-8"}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := draw(t, r, machines, 1+r.IntN(4), r.IntN(8))
		text := []string{"", "NVLINK", "NV2", "NV4", "PHB"}[r.IntN(5)]
		var atLeast nvtopo.Class
		asked := nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}
		if text != "" {
			var err error
			if atLeast, err = nvtopo.ParseClass(text); err != nil {
				t.Fatal(err)
			}
			asked = atLeast
		}
		type counts struct {
			Nodes, GPUs, Free, Joined int
			Slots                     map[int]int
		}
		want := counts{Slots: map[int]int{}}
		for i, n := range p.nodes {
			g := n.tables.Graph()
			if partners(g, nvtopo.FullMask(g.Len()), atLeast) == 0 {
				continue
			}
			free := p.free(i, nil)
			want.Nodes, want.GPUs, want.Free, want.Joined = want.Nodes+1, want.GPUs+g.Len(), want.Free+free.Len(), want.Joined+partners(g, free, asked)
			for _, k := range clusterview.Sizes() {
				want.Slots[k] += cliques(g, free, k, atLeast)
			}
		}
		s := clusterview.Of(p.objects(t, nil), clusterview.Options{MinLink: atLeast}).Supply
		got := counts{Nodes: s.Nodes, GPUs: s.GPUs, Free: s.FreeGPUs, Joined: s.JoinedGPUs, Slots: map[int]int{}}
		for _, at := range s.Slots {
			if want.Nodes > 0 {
				got.Slots[at.GPUs] = at.Free
			}
			for _, l := range at.Linked {
				if class, err := nvtopo.ParseClass(l.Class); err != nil || !class.AtLeast(atLeast) {
					t.Errorf("seed %d, %q: groups of %d by %s (%v)", seed, text, at.GPUs, l.Class, err)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, at least %q (-want,+got):\n%s", seed, text, diff)
		}
	}
}
