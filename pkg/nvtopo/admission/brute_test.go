// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The brute force works on lists of node ids, tries every combination of hints one
// after the other and every concrete set of devices.

type bruteHint struct {
	nodes []int // ascending; nil: no preference
	good  bool
}

type bruteMachine struct {
	policy    Policy
	podScope  bool
	closest   bool
	ids       []int
	distances map[[2]int]int
	numa      [][]int // by resource, by device
	all       []nvtopo.Mask
}

func subsetsOf(ids []int) [][]int {
	var out [][]int
	for bitsSet := 1; bitsSet < 1<<len(ids); bitsSet++ {
		var s []int
		for i, id := range ids {
			if bitsSet>>i&1 != 0 {
				s = append(s, id)
			}
		}
		out = append(out, s)
	}
	return out
}

func (b *bruteMachine) deviceHints(r, n int, free, reuse nvtopo.Mask) []bruteHint {
	known := false
	for d := range b.all[r].All() {
		known = known || b.numa[r][d] >= 0
	}
	if !known {
		return []bruteHint{{nil, true}}
	}
	count := func(set nvtopo.Mask, nodes []int) int {
		c := 0
		for d := range set.All() {
			if slices.Contains(nodes, b.numa[r][d]) {
				c++
			}
		}
		return c
	}
	fewest := len(b.ids)
	var out []bruteHint
	for _, nodes := range subsetsOf(b.ids) {
		if count(b.all[r], nodes) >= n {
			fewest = min(fewest, len(nodes))
		}
		inside := true
		for d := range reuse.All() {
			if b.numa[r][d] >= 0 && !slices.Contains(nodes, b.numa[r][d]) {
				inside = false
			}
		}
		if inside && count(free|reuse, nodes) >= n && (free|reuse).Len() >= n {
			out = append(out, bruteHint{nodes: nodes})
		}
	}
	for i := range out {
		out[i].good = len(out[i].nodes) == fewest
	}
	if len(out) == 0 {
		return []bruteHint{{nil, false}}
	}
	return out
}

// better says whether kubelet would replace current by candidate.
func (b *bruteMachine) better(candidate, current bruteHint, width int) bool {
	if candidate.good != current.good {
		return candidate.good
	}
	x, y := len(candidate.nodes), len(current.nodes)
	if !candidate.good {
		switch {
		case y > width:
		case y == width && x != width:
			return false
		case y < width && x > width:
			return false
		case y < width && x != y:
			return x > y
		}
	}
	if x != y {
		return x < y
	}
	if b.closest && b.policy != PolicySingleNUMANode {
		if d, e := b.mean(candidate.nodes), b.mean(current.nodes); d != e {
			return d < e
		}
	}
	for i := x - 1; i >= 0; i-- {
		if candidate.nodes[i] != current.nodes[i] {
			return candidate.nodes[i] < current.nodes[i]
		}
	}
	return false
}

func (b *bruteMachine) mean(nodes []int) float64 {
	sum := 0
	for _, i := range nodes {
		for _, j := range nodes {
			sum += b.distances[[2]int{i, j}]
		}
	}
	return float64(sum) / float64(len(nodes)*len(nodes))
}

func (b *bruteMachine) merge(providers [][]bruteHint) (bruteHint, bool) {
	if b.policy == PolicySingleNUMANode {
		for i := range providers {
			providers[i] = slices.DeleteFunc(slices.Clone(providers[i]), func(h bruteHint) bool {
				return !h.good || h.nodes != nil && len(h.nodes) != 1
			})
		}
	}
	width := 0
	for _, hints := range providers {
		fewest := 0
		for _, h := range hints {
			if h.nodes != nil && (fewest == 0 || len(h.nodes) < fewest) {
				fewest = len(h.nodes)
			}
		}
		width = max(width, fewest)
	}
	best, found := bruteHint{nodes: b.ids}, false
	var try func(i int, chosen []bruteHint)
	try = func(i int, chosen []bruteHint) {
		if i < len(providers) {
			for _, h := range providers[i] {
				try(i+1, append(slices.Clone(chosen), h))
			}
			return
		}
		result := bruteHint{nodes: b.ids, good: true}
		var first []int
		for _, h := range chosen {
			result.good = result.good && h.good
			if h.nodes == nil {
				continue
			}
			if first == nil {
				first = h.nodes
			}
			result.good = result.good && slices.Equal(first, h.nodes)
			result.nodes = slices.DeleteFunc(slices.Clone(result.nodes), func(n int) bool { return !slices.Contains(h.nodes, n) })
		}
		if len(result.nodes) > 0 && (!found || b.better(result, best, width)) {
			best, found = result, true
		}
	}
	try(0, nil)
	if b.policy == PolicySingleNUMANode && slices.Equal(best.nodes, b.ids) {
		best.nodes = nil
	}
	return best, best.good || b.policy == PolicyBestEffort
}

type bruteState struct{ free, reuse []nvtopo.Mask }

func (b *bruteMachine) hint(s bruteState, c *Container, reuse bool) (bruteHint, bool) {
	var providers [][]bruteHint
	for r := range b.all {
		if c.Devices[r] > 0 {
			var kept nvtopo.Mask
			if reuse {
				kept = s.reuse[r]
			}
			providers = append(providers, b.deviceHints(r, c.Devices[r], s.free[r], kept))
		}
	}
	return b.merge(providers)
}

// admit tries every set of devices that kubelet could be made to take.
func (b *bruteMachine) admit(s bruteState, pod *Pod, budget []nvtopo.Mask, i, r int, h bruteHint) bool {
	if i == len(pod.Containers) {
		return true
	}
	c := &pod.Containers[i]
	if r == 0 && b.policy != PolicyNone && !b.podScope {
		var ok bool
		if h, ok = b.hint(s, c, true); !ok {
			return false
		}
	}
	if r == len(b.all) {
		return b.admit(s, pod, budget, i+1, 0, h)
	}
	n := c.Devices[r]
	if n == 0 {
		return b.admit(s, pod, budget, i, r+1, h)
	}
	reuse := s.reuse[r]
	if reuse.Len() > n { // kubelet's dice
		if c.Kind == Init {
			return b.admit(s, pod, budget, i, r+1, h)
		}
		for part := range subsets(reuse, n) {
			next := bruteState{s.free, slices.Clone(s.reuse)}
			next.reuse[r] &^= part
			if !b.admit(next, pod, budget, i, r+1, h) {
				return false
			}
		}
		return true
	}
	need := n - reuse.Len()
	if s.free[r].Len() < need {
		return false
	}
	aligned, known := nvtopo.Mask(0), false
	for d := range b.all[r].All() {
		known = known || b.numa[r][d] >= 0
		if s.free[r].Has(d) && slices.Contains(h.nodes, b.numa[r][d]) {
			aligned |= 1 << d
		}
	}
	if h.nodes == nil || b.policy == PolicyNone || !known {
		aligned = 0
	}
	for fresh := range subsets(s.free[r], need) {
		honoured := fresh&^aligned == 0 || aligned&^fresh == 0
		if need < aligned.Len() {
			honoured = fresh&^aligned == 0
		} else if aligned&^fresh != 0 {
			honoured = false
		}
		if !honoured || fresh&^budget[r] != 0 {
			continue
		}
		next := bruteState{slices.Clone(s.free), slices.Clone(s.reuse)}
		rest := slices.Clone(budget)
		next.free[r] &^= fresh
		rest[r] &^= fresh
		next.reuse[r] = 0
		if c.Kind == Init {
			next.reuse[r] = reuse | fresh
		}
		if b.admit(next, pod, rest, i, r+1, h) {
			return true
		}
	}
	return false
}

func subsets(of nvtopo.Mask, n int) func(func(nvtopo.Mask) bool) {
	return func(yield func(nvtopo.Mask) bool) {
		for s := of; ; s = (s - 1) & of {
			if s.Len() == n && !yield(s) || s == 0 {
				return
			}
		}
	}
}

// randomCase makes a small machine, a state and a pod.
func randomCase(r *rand.Rand) (*Machine, *bruteMachine, State, *Pod) {
	n := 1 + r.IntN(4)
	b := &bruteMachine{policy: Policy(r.IntN(4)), podScope: r.IntN(2) == 0, closest: r.IntN(3) == 0, distances: map[[2]int]int{}}
	cfg := &Config{Policy: b.policy, PodScope: b.podScope, TopologyOptions: map[string]string{preferClosest: strconv.FormatBool(b.closest)}}
	var nodes []Node
	id := 0
	for range n {
		id += 1 + r.IntN(2)
		b.ids = append(b.ids, id)
		nodes = append(nodes, Node{ID: id, Distances: make([]int, n)})
	}
	for i := range n {
		for j := range n {
			d := 10
			if i != j {
				d = 11 + r.IntN(3)
			}
			nodes[i].Distances[j] = d
			b.distances[[2]int{b.ids[i], b.ids[j]}] = d
		}
	}
	kinds := 1 + r.IntN(2)
	var resources []Resource
	var s State
	for range kinds {
		devices := 1 + r.IntN(7)
		res := Resource{All: nvtopo.FullMask(devices)}
		blind := r.IntN(8) == 0
		for range devices {
			at := b.ids[r.IntN(n)]
			if blind || r.IntN(12) == 0 {
				at = nvtopo.UnknownNUMA
			}
			res.NUMA = append(res.NUMA, at)
		}
		resources = append(resources, res)
		b.numa, b.all = append(b.numa, res.NUMA), append(b.all, res.All)
	}
	m, err := New(cfg, nodes, resources)
	if err != nil {
		panic(err) // of the test's own making
	}
	s = m.NewState(nil, nil)
	for i := range kinds {
		s.Free[i] = nvtopo.Mask(r.Uint64()) & b.all[i]
		if r.IntN(3) == 0 {
			s.Free[i] = b.all[i]
		}
	}
	var cs []Container
	for range r.IntN(3) {
		cs = append(cs, Container{Kind: []Kind{Init, Sidecar}[r.IntN(2)]})
	}
	for range 1 + r.IntN(2) {
		cs = append(cs, Container{Kind: App})
	}
	for i := range cs {
		for k := range kinds {
			if r.IntN(3) > 0 {
				cs[i].Devices[k] = r.IntN(4)
			}
		}
	}
	return m, b, s, NewPod(cs)
}

func TestAdmissionAgreesWithTryingEverything(t *testing.T) {
	cases, admitted, refused := 30000, 0, 0
	if testing.Short() {
		cases = 3000
	}
	r := rand.New(rand.NewPCG(4, 6))
	for i := range cases {
		m, b, s, pod := randomCase(r)
		wish := &Wish{}
		budget := make([]nvtopo.Mask, len(b.all))
		for k := range b.all {
			budget[k] = s.Free[k]
			if r.IntN(2) == 0 {
				wish.Fixed[k] = true
				wish.Sets[k] = randomSubset(r, s.Free[k], pod.whole.Devices[k])
				budget[k] = wish.Sets[k]
			}
		}
		got := m.Admit(&s, pod, wish, nil)
		brute := bruteState{free: slices.Clone(s.Free[:len(b.all)]), reuse: make([]nvtopo.Mask, len(b.all))}
		want, h := true, bruteHint{}
		if b.podScope && b.policy != PolicyNone {
			h, want = b.hint(brute, &pod.whole, false)
		}
		want = want && b.admit(brute, pod, budget, 0, 0, h)
		if got != want {
			t.Fatalf("case %d: admitted %t, want %t\nmachine %+v\nfree %v\npod %+v\nwish %+v", i, got, want, b, brute.free, pod, wish)
		}
		if got {
			admitted++
		} else {
			refused++
		}
	}
	t.Logf("%d admitted, %d refused", admitted, refused)
	if admitted < cases/10 || refused < cases/10 {
		t.Errorf("%d admitted and %d refused of %d: the cases are one-sided", admitted, refused, cases)
	}
}

func randomSubset(r *rand.Rand, of nvtopo.Mask, n int) (out nvtopo.Mask) {
	members := of.Positions()
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return nvtopo.MaskOf(members[:min(n, len(members))]...)
}

// TestHintsAgreeWithEveryCombination compares the merge of arbitrary hints, not only
// those that devices give.
func TestHintsAgreeWithEveryCombination(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for i := range 20000 {
		n := 1 + r.IntN(4)
		b := &bruteMachine{policy: Policy(1 + r.IntN(3)), closest: r.IntN(2) == 0, distances: map[[2]int]int{}}
		m := &Machine{policy: b.policy, closest: b.closest, nodes: n, all: 1<<n - 1}
		for p := range n {
			b.ids = append(b.ids, p)
			row := make([]int, n)
			for q := range n {
				row[q] = 10 + r.IntN(3)
				b.distances[[2]int{p, q}] = row[q]
			}
			m.distances = append(m.distances, row)
		}
		l := lists{size: 1 << n}
		var providers [][]bruteHint
		for range r.IntN(4) {
			switch r.IntN(6) {
			case 0:
				providers = append(providers, []bruteHint{{nil, true}})
				continue
			case 1:
				providers = append(providers, []bruteHint{{nil, false}})
				l.impossible = true
				continue
			}
			row, width := l.next(), 1+r.IntN(n)
			var hints []bruteHint
			for _, nodes := range subsetsOf(b.ids) {
				if r.IntN(2) == 0 {
					continue
				}
				var set NodeSet
				for _, id := range nodes {
					set |= 1 << id
				}
				row[set] = offered
				hints = append(hints, bruteHint{nodes, len(nodes) == width})
			}
			if l.keep(width) {
				providers = append(providers, hints)
			} else {
				l.impossible = true
				providers = append(providers, []bruteHint{{nil, false}})
			}
		}
		want, wantOK := b.merge(providers)
		got, ok := m.merge(&l)
		if ok != wantOK {
			t.Fatalf("case %d: admitted %t, want %t; %+v", i, ok, wantOK, providers)
		}
		if !ok {
			continue
		}
		var nodes []int
		for p := range n {
			if got.Nodes.has(p) {
				nodes = append(nodes, p)
			}
		}
		if got.Bound != (want.nodes != nil) || got.Bound && !slices.Equal(nodes, want.nodes) || got.Preferred != want.good {
			t.Fatalf("case %d: hint %+v (nodes %v), want %+v; policy %d, %+v", i, got, nodes, want, b.policy, providers)
		}
	}
}
