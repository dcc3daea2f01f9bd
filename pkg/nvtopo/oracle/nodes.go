// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/big"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Node is one of several machines to choose from.
type Node struct {
	Oracle      *Oracle
	Whole, Free nvtopo.Mask // the GPUs that may be used, and those of them that are free
}

// Choice is what one node has for a pod, and how it stands among the others.
type Choice struct {
	Set   nvtopo.Mask
	Found bool // the node has a set at all
	// Band is 0 for the best ring that the machine can give to as many GPUs, up to 4.
	Band  int
	Score *big.Rat // 0 to 100 among the nodes of the best band; nil for others
	Left  int      // GPUs that stay free
}

// Across judges nodes by the order across nodes of the objective, with the published
// weights. The choices are in the order of the nodes.
func Across(nodes []Node, k int, c nvtopo.Constraint) []Choice {
	out := make([]Choice, len(nodes))
	band := 5
	for i, n := range nodes {
		out[i].Set, out[i].Found = n.Oracle.Best(n.Free, n.Free, k, c)
		if !out[i].Found {
			continue
		}
		out[i].Band = n.Oracle.band(out[i].Set)
		out[i].Left = (n.Free &^ out[i].Set).Len()
		band = min(band, out[i].Band)
	}
	var bestRing, bestLatency int64
	greatest := new(big.Rat)
	costs := make([]*big.Rat, len(nodes))
	for i, n := range nodes {
		if !out[i].Found || out[i].Band != band {
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
	return out
}

// ratio is a/b, and full where there is nothing to compare: one GPU has no link.
func ratio(a, b int64) *big.Rat {
	if a == 0 || b == 0 {
		return big.NewRat(1, 1)
	}
	return big.NewRat(a, b)
}

// band compares the set's ring with the best of as many GPUs on the empty machine.
func (o *Oracle) band(set nvtopo.Mask) int {
	var best int64
	eachSubset(nvtopo.FullMask(o.g.Len()), set.Len(), func(s nvtopo.Mask) { best = max(best, o.ring(s).kBps) })
	ring := o.ring(set).kBps
	switch {
	case set.Len() == 1 || ring >= best:
		return 0
	case 4*ring >= 3*best:
		return 1
	case 2*ring >= best:
		return 2
	case 4*ring >= best:
		return 3
	}
	return 4
}

// latency is the greatest among the set's links of the ring's bandwidth, in ns.
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

// cost is (R(F) - R(F \ S)) / R(whole machine) · n³, n being the GPUs of that.
func (n Node) cost(set nvtopo.Mask) *big.Rat {
	whole := n.Oracle.residual(n.Whole)
	if whole.Sign() == 0 {
		return new(big.Rat)
	}
	lost := new(big.Int).Sub(n.Oracle.residual(n.Free), n.Oracle.residual(n.Free&^set))
	gpus := int64(n.Whole.Len())
	return new(big.Rat).SetFrac(lost.Mul(lost, big.NewInt(gpus*gpus*gpus)), whole)
}
