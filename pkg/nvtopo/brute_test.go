// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/big"
	"slices"
)

// brute answers every question from the definitions, with no table, no mask
// trick and no shared code but the graph itself: the rings by trying all
// orders, the packings by trying all groups, the choice by comparing all sets.
type brute struct {
	g       *Graph
	w       Weights
	rings   map[Mask]int64
	values  map[Mask]*big.Int
	resid   map[Mask]*big.Int
	keys    map[Mask]bruteKey
	packing map[[2]uint64]*big.Int
}

// bruteKey is the criteria of a set that do not depend on the free set.
type bruteKey struct {
	ring, pcie, pair int64
	nodes, dist      int
	members          []int
}

func newBrute(g *Graph, w Weights) *brute {
	return &brute{
		g: g, w: w, rings: map[Mask]int64{}, values: map[Mask]*big.Int{}, resid: map[Mask]*big.Int{},
		keys: map[Mask]bruteKey{}, packing: map[[2]uint64]*big.Int{},
	}
}

// members lists a set the plain way.
func members(s Mask) []int {
	var out []int
	for i := range MaxGPUs {
		if s>>i&1 == 1 {
			out = append(out, i)
		}
	}
	return out
}

func bottleneck(g *Graph, order []int) int64 {
	if len(order) < 2 {
		return 0
	}
	least := int64(-1)
	for i := range order {
		if bw := g.Link(order[i], order[(i+1)%len(order)]).Bandwidth; least < 0 || bw < least {
			least = bw
		}
	}
	return least
}

// eachOrder calls f with every order of s that begins with its lowest member,
// lexicographically ascending.
func eachOrder(s Mask, f func(order []int)) {
	ms := members(s)
	order := ms[:1:1]
	var extend func(left []int)
	extend = func(left []int) {
		if len(left) == 0 {
			f(order)
			return
		}
		for i, v := range left {
			order = append(order, v)
			extend(slices.Concat(left[:i], left[i+1:]))
			order = order[:len(order)-1]
		}
	}
	extend(ms[1:])
}

func (b *brute) ring(s Mask) int64 {
	if r, ok := b.rings[s]; ok {
		return r
	}
	var best int64
	if len(members(s)) > 1 {
		eachOrder(s, func(order []int) { best = max(best, bottleneck(b.g, order)) })
	}
	b.rings[s] = best
	return best
}

// ringOrder is the best order with the greatest sum of links, the first of such.
func (b *brute) ringOrder(s Mask) []int {
	var first []int
	most := int64(-1)
	best := b.ring(s)
	eachOrder(s, func(order []int) {
		if sum := linkSum(b.g, order); sum > most && bottleneck(b.g, order) == best {
			first, most = slices.Clone(order), sum
		}
	})
	return first
}

// linkSum is the sum of the bandwidths of a ring's links.
func linkSum(g *Graph, order []int) int64 {
	sum := int64(0)
	for i := range order {
		sum += g.Link(order[i], order[(i+1)%len(order)]).Bandwidth
	}
	return sum
}

func (b *brute) key(s Mask) bruteKey {
	if k, ok := b.keys[s]; ok {
		return k
	}
	k := bruteKey{ring: b.ring(s), members: members(s)}
	known := map[int]bool{}
	for x, i := range k.members {
		node := b.g.GPUs[i].NUMANode
		if node == UnknownNUMA {
			k.nodes++
		} else {
			known[node] = true
		}
		for _, j := range k.members[:x] {
			l := b.g.Link(i, j)
			k.pair += l.Bandwidth
			k.pcie += l.PCIe.Rank()
			other := b.g.GPUs[j].NUMANode
			k.dist = max(k.dist, b.g.NUMADistance(node, other), b.g.NUMADistance(other, node))
		}
	}
	k.nodes += len(known)
	b.keys[s] = k
	return k
}

func scaled(v *big.Int, num, den int64) *big.Int {
	v = new(big.Int).Mul(v, big.NewInt(num))
	return v.Quo(v, big.NewInt(den))
}

func (b *brute) value(s Mask) *big.Int {
	if v, ok := b.values[s]; ok {
		return v
	}
	k := b.key(s)
	v := new(big.Int).Mul(big.NewInt(k.ring), big.NewInt(1_000_000))
	for i := 1; i < k.nodes; i++ {
		v = scaled(v, 9, 10)
	}
	if k.dist > 20 {
		v = scaled(v, 95, 100)
	}
	v = scaled(v, 2000-k.pcie, 2000)
	b.values[s] = v
	return v
}

// pack tries every group of g in s, and for each every packing of the rest.
func (b *brute) pack(s Mask, g int) *big.Int {
	key := [2]uint64{uint64(s), uint64(g)}
	if v, ok := b.packing[key]; ok {
		return v
	}
	best := new(big.Int)
	for _, t := range bruteSubsets(s, g) {
		if v := new(big.Int).Add(b.value(t), b.pack(s&^t, g)); v.Cmp(best) > 0 {
			best = v
		}
	}
	b.packing[key] = best
	return best
}

func (b *brute) residual(s Mask) *big.Int {
	if v, ok := b.resid[s]; ok {
		return v
	}
	sum := new(big.Int)
	for g := 2; g <= 8; g++ {
		sum.Add(sum, scaled(b.pack(s, g), b.w.Group[g]*int64(g), 1000))
	}
	b.resid[s] = sum
	return sum
}

// bruteSubsets lists the subsets of k members.
func bruteSubsets(s Mask, k int) []Mask {
	var out []Mask
	ms := members(s)
	var extend func(from int, t Mask, left int)
	extend = func(from int, t Mask, left int) {
		if left == 0 {
			out = append(out, t)
			return
		}
		for i := from; i < len(ms); i++ {
			extend(i+1, t|1<<ms[i], left-1)
		}
	}
	extend(0, 0, k)
	return out
}

// emptyNodes is the fewest NUMA nodes any k GPUs of the machine have.
func (b *brute) emptyNodes(k int) int {
	least := MaxGPUs + 1
	for _, s := range bruteSubsets(FullMask(b.g.Len()), k) {
		least = min(least, b.key(s).nodes)
	}
	return least
}

// first is the constraint no candidate passes, in the order of Shortfall.
func (b *brute) shortfall(s Mask, c Constraint, emptyNodes int) Shortfall {
	ms := members(s)
	for x, i := range ms {
		for _, j := range ms[:x] {
			if !c.AllowMixedModels && b.g.GPUs[i].Model != b.g.GPUs[j].Model {
				return ShortModel
			}
		}
	}
	nodes := b.key(s).nodes
	if c.Policy == PolicySingleNUMANode && nodes > 1 || c.Policy == PolicyRestricted && nodes > emptyNodes {
		return ShortNUMA
	}
	for x, i := range ms {
		for _, j := range ms[:x] {
			if !b.g.Link(i, j).Class.AtLeast(c.MinLink) {
				return ShortLink
			}
		}
	}
	if len(ms) > 1 && b.key(s).ring < c.MinBandwidth {
		return ShortBandwidth
	}
	return ShortNone
}

// better reports whether s beats t with the given set free.
func (b *brute) better(s, t, free Mask) bool {
	x, y := b.key(s), b.key(t)
	switch r := b.residual(free &^ s).Cmp(b.residual(free &^ t)); {
	case x.ring != y.ring:
		return x.ring > y.ring
	case x.nodes != y.nodes:
		return x.nodes < y.nodes
	case x.dist != y.dist:
		return x.dist < y.dist
	case r != 0:
		return r > 0
	case x.pcie != y.pcie:
		return x.pcie < y.pcie
	case x.pair != y.pair:
		return x.pair > y.pair
	}
	return slices.Compare(x.members, y.members) < 0
}

// pick returns the best set, or the furthest constraint any set reaches.
func (b *brute) pick(free, allowed Mask, k int, c Constraint) (Mask, Shortfall) {
	if len(members(free&allowed)) < k {
		return 0, ShortFree
	}
	var best Mask
	var reached Shortfall
	nodes := 0
	if c.Policy == PolicyRestricted {
		nodes = b.emptyNodes(k)
	}
	for _, s := range bruteSubsets(free&allowed, k) {
		if short := b.shortfall(s, c, nodes); short != ShortNone {
			reached = max(reached, short)
			continue
		}
		if best == 0 || b.better(s, best, free) {
			best = s
		}
	}
	if best != 0 {
		return best, ShortNone
	}
	return 0, reached
}
