// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// MostGPUs is the largest set whose rings are searched.
const MostGPUs = 16

// AllReduce returns the seconds of an all-reduce of so many bytes around the fastest ring through a
// set of GPUs:
//
//	2(k-1)/k · bytes/B + 2(k-1) · L
//
// B is the least bandwidth of the ring's links, L the greatest latency. It is 0 for one GPU, and +Inf
// if every ring has a link of unknown bandwidth. Of sets above MostGPUs it reports an error.
func AllReduce(g *nvtopo.Graph, set nvtopo.Mask, bytes float64) (float64, error) {
	members := set.Positions()
	k := len(members)
	if k > MostGPUs {
		return 0, fmt.Errorf("all-reduce of %d GPUs: at most %d", k, MostGPUs)
	}
	if k < 2 {
		return 0, nil
	}
	least := math.Inf(1)
	for _, l := range limits(g, members) {
		steps := 2 * float64(k-1)
		seconds := steps/float64(k)*bytes/(float64(l.bandwidth)*1e3) + steps*float64(l.latency)/1e9
		if seconds < least && hasRing(g, members, l) {
			least = seconds
		}
	}
	return least, nil
}

// limit is the requirement on a ring's links: bandwidth in kB/s or more, latency in ns or less.
type limit struct{ bandwidth, latency int64 }

// limits returns all pairs of a bandwidth and a latency that links between the members have. The
// bottleneck of every ring is one of them.
func limits(g *nvtopo.Graph, members []int) []limit {
	var bandwidths, latencies []int64
	for a, i := range members {
		for _, j := range members[a+1:] {
			l := g.Link(i, j)
			if l.Bandwidth > 0 {
				bandwidths = append(bandwidths, l.Bandwidth)
			}
			latencies = append(latencies, l.Latency)
		}
	}
	var out []limit
	for _, b := range distinct(bandwidths) {
		for _, l := range distinct(latencies) {
			out = append(out, limit{b, l})
		}
	}
	// The fastest links first, so that fewer rings are searched for.
	slices.SortStableFunc(out, func(a, b limit) int { return cmp.Compare(b.bandwidth, a.bandwidth) })
	return out
}

func distinct(values []int64) []int64 {
	slices.Sort(values)
	return slices.Compact(values)
}

// hasRing reports whether the members lie on a ring whose links all keep the limit. reached[s] are
// the members at which a path can end that begins at the first member and visits exactly those of s.
func hasRing(g *nvtopo.Graph, members []int, keep limit) bool {
	k := len(members)
	beside := make([]uint16, k) // by member: those it has such a link to
	for a, i := range members {
		for b, j := range members {
			if l := g.Link(i, j); a != b && l.Bandwidth >= keep.bandwidth && l.Latency <= keep.latency {
				beside[a] |= 1 << b
			}
		}
	}
	reached := make([]uint16, 1<<k)
	reached[1] = 1
	for s := 1; s < 1<<k; s += 2 {
		for end := range k {
			if reached[s]>>end&1 == 0 {
				continue
			}
			for next := range k {
				if s>>next&1 == 0 && beside[end]>>next&1 != 0 {
					reached[s|1<<next] |= 1 << next
				}
			}
		}
	}
	return reached[1<<k-1]&beside[0] != 0
}
