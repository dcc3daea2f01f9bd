// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/big"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Node is one of several machines to choose from.
type Node struct {
	Oracle      *Oracle
	Whole, Free nvtopo.Mask // the GPUs that may be used, and those of them that are free
	Pods        []int       // GPUs of each pod that runs on it
	Refused     nvtopo.Mask // GPUs that the pod does not accept, for their model or memory
	Preference  int64       // the pod's preference for the machine
	Speed       *big.Rat    // TFLOPS of its GPUs, if single GPUs are placed by it; nil: by links
}

// Choice is a node's set for a pod, and its rank among the nodes.
type Choice struct {
	Set   nvtopo.Mask
	Found bool // the node has a set at all
	// Reserved reports that the machine is left to larger pods.
	Reserved bool
	// Cost is compared first: seconds of an all-reduce, or for one GPU the ring of the whole machine or the
	// speed of its GPUs.
	Cost  *big.Rat
	Score *big.Rat // 0 to 100 among the nodes of the least cost; nil for others
	Left  int      // GPUs that stay free
}

// Across judges nodes by the order across nodes of the objective, with the published weights, for
// messages of the given bytes. The choices are in the order of the nodes.
func Across(nodes []Node, k int, c nvtopo.Constraint, bytes int64) []Choice {
	out := make([]Choice, len(nodes))
	left := LeftToLarger(nodes, k)
	for i, n := range nodes {
		out[i].Set, out[i].Found = n.Oracle.Best(n.Free, n.Free&^n.Refused, k, c)
		if !out[i].Found {
			continue
		}
		out[i].Left = (n.Free &^ out[i].Set).Len()
		out[i].Reserved = left.has(n)
		switch {
		case k > 1:
			out[i].Cost = n.Oracle.allReduce(out[i].Set, bytes)
		case n.Speed != nil:
			out[i].Cost = n.Speed
		default:
			out[i].Cost = n.links()
		}
	}
	score(nodes, out, equals(nodes, out))
	return out
}

// Allowed returns the positions of the choices between which the order does not decide, apart from the
// order of leaves: those with the greatest score, and of equal scores with the fewest GPUs left. The
// scheduler rounds scores to a thousandth of a point, so a choice may be that much behind.
func Allowed(choices []Choice) (out []int) {
	var best *Choice
	for i := range choices {
		if c := &choices[i]; c.Score != nil && (best == nil || c.Score.Cmp(best.Score) > 0 || c.Score.Cmp(best.Score) == 0 && c.Left < best.Left) {
			best = c
		}
	}
	rounding := big.NewRat(1, 1000)
	for i := range choices {
		if choices[i].Score == nil {
			continue
		}
		behind := new(big.Rat).Sub(best.Score, choices[i].Score)
		if behind.Cmp(rounding) <= 0 && (behind.Sign() > 0 || choices[i].Left == best.Left) {
			out = append(out, i)
		}
	}
	return out
}

// equals returns which choices have a cost at most a tenth above the least: of those that are not
// reserved, or of all if all are, the ones with the greatest preference.
func equals(nodes []Node, choices []Choice) []bool {
	anyOpen := slices.ContainsFunc(choices, func(c Choice) bool { return c.Found && !c.Reserved })
	out := make([]bool, len(choices))
	var liked *int64
	for i := range choices {
		if out[i] = choices[i].Found && choices[i].Reserved != anyOpen; out[i] && (liked == nil || nodes[i].Preference > *liked) {
			liked = &nodes[i].Preference
		}
	}
	var least *big.Rat
	for i := range choices {
		if out[i] = out[i] && nodes[i].Preference == *liked; out[i] && (least == nil || choices[i].Cost.Cmp(least) < 0) {
			least = choices[i].Cost
		}
	}
	for i := range choices {
		out[i] = out[i] && choices[i].Cost.Cmp(new(big.Rat).Mul(least, big.NewRat(11, 10))) <= 0
	}
	return out
}

// score sets the scores of the choices that are equal in reserve, preference and cost.
func score(nodes []Node, out []Choice, equal []bool) {
	var bestRing, bestLatency int64
	greatest := new(big.Rat)
	costs := make([]*big.Rat, len(nodes))
	for i, n := range nodes {
		if !equal[i] {
			continue
		}
		bestRing = max(bestRing, n.Oracle.ring(out[i].Set).kBps)
		if l := n.Oracle.latency(out[i].Set); bestLatency == 0 || l < bestLatency {
			bestLatency = l
		}
		costs[i] = n.cost(out[i].Set)
		if costs[i].Cmp(greatest) > 0 {
			greatest = costs[i]
		}
	}
	for i, n := range nodes {
		if costs[i] == nil {
			continue
		}
		// 100 · (0.4 · ring / best ring + 0.3 · best latency / latency + 0.3 · (1 - lost))
		ring := ratio(n.Oracle.ring(out[i].Set).kBps, bestRing)
		latency := ratio(bestLatency, n.Oracle.latency(out[i].Set))
		kept := big.NewRat(1, 1)
		if greatest.Sign() > 0 {
			kept.Sub(kept, new(big.Rat).Quo(costs[i], greatest))
		}
		out[i].Score = new(big.Rat).Mul(ring, big.NewRat(40, 1))
		out[i].Score.Add(out[i].Score, latency.Mul(latency, big.NewRat(30, 1)))
		out[i].Score.Add(out[i].Score, kept.Mul(kept, big.NewRat(30, 1)))
	}
}

// ratio returns a/b, and 1 if either is 0: one GPU has no link.
func ratio(a, b int64) *big.Rat {
	if a == 0 || b == 0 {
		return big.NewRat(1, 1)
	}
	return big.NewRat(a, b)
}

// allReduce returns the seconds of an all-reduce around the ring of a set: 2(k-1) messages of a k-th of
// the bytes each.
func (o *Oracle) allReduce(set nvtopo.Mask, bytes int64) *big.Rat {
	k := int64(set.Len())
	message := big.NewRat(bytes, k*1000*max(1, o.ring(set).kBps))
	message.Add(message, big.NewRat(o.latency(set), 1_000_000_000))
	return message.Mul(message, big.NewRat(2*(k-1), 1))
}

// Size returns the number of GPUs.
func (n Node) Size() int { return n.Whole.Len() }

// Together returns the largest number of GPUs with at least half of the bandwidth of the best pair.
func (n Node) Together() int {
	best := func(k int) (ring int64) {
		eachSubset(nvtopo.FullMask(n.Oracle.g.Len()), k, func(s nvtopo.Mask) { ring = max(ring, n.Oracle.ring(s).kBps) })
		return ring
	}
	for k := n.Whole.Len(); k > 2; k-- {
		if 2*best(k) >= best(2) {
			return k
		}
	}
	return min(2, n.Whole.Len())
}

// links returns the ring of the whole machine.
func (n Node) links() *big.Rat { return big.NewRat(n.Oracle.ring(n.Whole).kBps, 1) }

// Sizes are sizes of machines, by each of the two sizes of a machine.
type Sizes struct{ GPUs, Together []int }

// LeftToLarger returns the sizes of machines that are left to pods larger than one of k GPUs: those that
// are scarce. For a single GPU none is while the other machines have fewer free GPUs than the root of the
// number of their pods of several GPUs, times the mean size of these.
func LeftToLarger(nodes []Node, k int) Sizes {
	s := Sizes{scarce(nodes, k, Node.Size), scarce(nodes, k, Node.Together)}
	if k > 1 {
		return s
	}
	free, held, pods := 0, 0, 0
	for _, n := range nodes {
		if s.has(n) {
			continue
		}
		used := 0
		for _, pod := range n.Pods {
			used += pod
			if pod > 1 {
				held, pods = held+pod, pods+1
			}
		}
		free += max(0, n.Whole.Len()-used)
	}
	if free*free*pods < held*held {
		return Sizes{}
	}
	return s
}

func (s Sizes) has(n Node) bool {
	return slices.Contains(s.GPUs, n.Size()) || slices.Contains(s.Together, n.Together())
}

// scarce returns the sizes of machines that are scarce for pods larger than one of k GPUs. A size is
// scarce if the next smaller machines would suffice for the pod and too little is left: the GPUs of
// machines of that size or more without a smaller pod, minus those of all pods too large for the smaller
// machines, are fewer than those of 1.5 · √n machines, where n machines are filled by these pods.
func scarce(nodes []Node, k int, size func(Node) int) (out []int) {
	sizes := make([]int, len(nodes))
	for i, n := range nodes {
		sizes[i] = size(n)
	}
	for _, s := range slices.Compact(slices.Sorted(slices.Values(sizes))) {
		smaller := 0
		for _, other := range sizes {
			if other < s {
				smaller = max(smaller, other)
			}
		}
		if smaller < k {
			continue
		}
		held, unbroken := 0, 0
		for i, n := range nodes {
			broken := false
			for _, pod := range n.Pods {
				if pod > smaller {
					held += pod
				} else {
					broken = true
				}
			}
			if sizes[i] >= s && !broken {
				unbroken += n.Whole.Len()
			}
		}
		// left < 1.5 · √(held / size) · size
		if left := unbroken - held; left < 0 || 4*left*left < 9*held*s {
			out = append(out, s)
		}
	}
	return out
}

// latency returns the greatest among the set's links of the ring's bandwidth, in ns.
func (o *Oracle) latency(set nvtopo.Mask) int64 {
	var worst int64
	for i := range set.All() {
		for j := range set.All() {
			if l := o.g.Link(i, j); i < j && l.Bandwidth == o.ring(set).kBps {
				worst = max(worst, l.Latency)
			}
		}
	}
	return worst
}

// cost returns (R(F) - R(F \ S)) / R(whole machine) · n³, n being the GPUs of the whole machine.
func (n Node) cost(set nvtopo.Mask) *big.Rat {
	whole := n.Oracle.residual(n.Whole)
	if whole.Sign() == 0 {
		return new(big.Rat)
	}
	lost := new(big.Int).Sub(n.Oracle.residual(n.Free), n.Oracle.residual(n.Free&^set))
	gpus := int64(n.Whole.Len())
	return new(big.Rat).SetFrac(lost.Mul(lost, big.NewInt(gpus*gpus*gpus)), whole)
}
