// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"math/rand/v2"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/baseline"
)

// mostForPartitions is the largest machine for the picker that tries all partitions: 105 for pairs of 8
// GPUs, 945 of 10, 2 million of 16.
const mostForPartitions = 10

// twoSteps is the usual two-step policy: a rule chooses the node by the number of its free GPUs, then a
// picker chooses among those.
type twoSteps struct {
	state   *state
	choose  func(s *state, gpus int) int // -1: no node has room
	pick    picker
	mishaps *mishaps
}

// picker chooses n of the free GPUs of a machine, which has at least n.
type picker func(k *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool)

func (p *twoSteps) changed(int) {}

func (p *twoSteps) place(gpus int) (int, nvtopo.Mask, bool) {
	at := p.choose(p.state, gpus)
	if at < 0 {
		return 0, 0, false
	}
	n := &p.state.nodes[at]
	free := n.free()
	con := p.state.sizes.constraints[p.state.sizes.at(gpus)]
	if con.Policy == nvtopo.PolicySingleNUMANode {
		if free = aligned(n.kind.tables.Graph(), free, gpus); free == 0 {
			p.mishaps.rejections++
			return 0, 0, false
		}
	}
	set, ok := p.pick(n.kind, free, gpus)
	if !ok {
		p.mishaps.failures++
		set = lowest(free, gpus)
	}
	return at, set, true
}

// aligned returns the GPUs from which a kubelet with the policy single-numa-node lets the picker choose:
// the free GPUs of the lowest NUMA node that has enough of them, 0 when none has and the pod is rejected.
func aligned(g *nvtopo.Graph, free nvtopo.Mask, gpus int) nvtopo.Mask {
	for i := range g.NUMANodes {
		var local nvtopo.Mask
		for p := range free.All() {
			if g.GPUs[p].NUMANode == g.NUMANodes[i].ID {
				local |= 1 << p
			}
		}
		if local.Len() >= gpus {
			return local
		}
	}
	return 0
}

// nodeRule chooses the node; ties go to the first in the list of nodes.
type nodeRule struct {
	name   string
	choose func(s *state, gpus int) int
}

func nodeRules() []nodeRule {
	return []nodeRule{
		{"spread", func(s *state, gpus int) int {
			return least(s, gpus, func(free int64) int64 { return -free })
		}},
		{"binpack", func(s *state, gpus int) int {
			return least(s, gpus, func(free int64) int64 { return free })
		}},
		{"fgd", func(s *state, gpus int) int {
			return least(s, gpus, func(free int64) int64 { return s.fragments[free-int64(gpus)] - s.fragments[free] })
		}},
		{"reserve", reserve},
	}
}

// least returns the node with room of the least cost, which depends on the free GPUs only.
func least(s *state, gpus int, cost func(free int64) int64) int {
	at, lowest := -1, int64(math.MaxInt64)
	for i := range s.nodes {
		if free := s.nodes[i].level.count; free >= int64(gpus) {
			if c := cost(free); c < lowest {
				at, lowest = i, c
			}
		}
	}
	return at
}

// reserve keeps fast machines for the pods that use their links, and packs: pods of several GPUs go to
// the fastest machines that have room, the others to the slowest, of equal ones to that with the fewest
// free GPUs. A machine is as fast as the ring of all its GPUs. After "reserving-and-packing" of "MLaaS in
// the Wild" (NSDI'22), which distinguishes fast and other machines.
func reserve(s *state, gpus int) int {
	at := -1
	better := func(a, b *node) bool {
		if a.speed != b.speed {
			return (a.speed > b.speed) == (gpus > 1)
		}
		return a.level.count < b.level.count
	}
	for i := range s.nodes {
		if s.nodes[i].level.count >= int64(gpus) && (at < 0 || better(&s.nodes[i], &s.nodes[at])) {
			at = i
		}
	}
	return at
}

// pickRule chooses the GPUs.
type pickRule struct {
	name     string
	mostGPUs int // of a machine; 0: any
	make     func(seed uint64) picker
}

func pickRules() []pickRule {
	return []pickRule{
		{name: "random", make: random},
		{name: "lowest", make: func(uint64) picker {
			return func(_ *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool) { return lowest(free, n), true }
		}},
		{name: "hami", make: func(uint64) picker { return remembering(baseline.PairScore()) }},
		{name: "best-effort", mostGPUs: mostForPartitions, make: func(uint64) picker { return remembering(baseline.BestPartition()) }},
		{name: "prim", make: func(uint64) picker { return remembering(baseline.ClosestPair()) }},
		{name: "exact", make: func(uint64) picker {
			return func(k *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool) {
				return k.tables.PickUsable(free, k.degraded, free, n, nvtopo.Constraint{})
			}
		}},
	}
}

// random returns a picker that draws a new random set for every pod.
func random(seed uint64) picker {
	rng := rand.New(rand.NewPCG(seed, streamPicks))
	return func(_ *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool) {
		for free.Len() > n {
			drop := rng.IntN(free.Len())
			r := free
			for range drop {
				r &= r - 1
			}
			free &^= r & -r
		}
		return free, true
	}
}

func lowest(free nvtopo.Mask, n int) nvtopo.Mask {
	var set nvtopo.Mask
	for range n {
		low := free & -free
		set |= low
		free &^= low
	}
	return set
}

// remembering caches the results of a picker, which are the same for the same machine, free set and size.
func remembering(p baseline.Picker) picker {
	type question struct {
		kind *kind
		free nvtopo.Mask
		n    int
	}
	type answer struct {
		set nvtopo.Mask
		ok  bool
	}
	known := map[question]answer{}
	return func(k *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool) {
		q := question{k, free, n}
		a, ok := known[q]
		if !ok {
			a.set, a.ok = p.Pick(k.tables.Graph(), free, n)
			known[q] = a
		}
		return a.set, a.ok
	}
}
