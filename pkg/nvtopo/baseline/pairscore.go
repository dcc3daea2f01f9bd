// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// PairScore is HAMi's "topology-aware" rule: the set with the greatest sum of
// pair scores; for one GPU the one with the least sum to the other free ones.
// Candidates are walked from the highest NUMA node and index down, and the
// first of equals stays. Source: HAMi, nvidia/device.go and gpu_policy.go.
func PairScore() Picker {
	return rule{"pair score (HAMi)", func(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
		order := free.Positions()
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(g.GPUs[b].NUMANode, g.GPUs[a].NUMANode), cmp.Compare(b, a))
		})
		if k == 1 {
			return 1 << leastConnected(g, order), true
		}
		var best nvtopo.Mask
		most := -1
		var extend func(from, sum int, taken []int)
		extend = func(from, sum int, taken []int) {
			if len(taken) == k {
				if sum > most {
					best, most = nvtopo.MaskOf(taken...), sum
				}
				return
			}
			for x := from; x <= len(order)-(k-len(taken)); x++ {
				more := sum
				for _, j := range taken {
					more += score(g, order[x], j)
				}
				extend(x+1, more, append(taken, order[x]))
			}
		}
		extend(0, 0, make([]int, 0, k))
		return best, true
	}}
}

func leastConnected(g *nvtopo.Graph, order []int) int {
	best, least := -1, 0
	for _, i := range order {
		sum := 0
		for _, j := range order {
			if i != j {
				sum += score(g, i, j)
			}
		}
		if best < 0 || sum < least {
			best, least = i, sum
		}
	}
	return best
}
