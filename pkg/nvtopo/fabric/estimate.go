// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math"
	"math/bits"
)

// Estimate returns the milliseconds of a hierarchical all-reduce of size bytes: inside each
// node, and between nodes in the order of ranks.
//
//	2(m-1)/m · size/r + 2(N-1)/N · size/B + 2(N-1) · L
//
// m is the number of GPUs a node gives, r the worst ring among the nodes in kB/s (0 if no node
// gives two GPUs), N the number of nodes; B and L are those of the worst link between one rank's
// node and the next's. It is not known (0, false) if a bandwidth that it needs is not.
func (t *Tree) Estimate(nodes []int, gpus int, ring int64, size float64) (ms float64, known bool) {
	seconds := 0.0
	if gpus > 1 {
		if ring <= 0 {
			return 0, false
		}
		seconds = transfer(2*size*float64(gpus-1)/float64(gpus), ring)
	}
	n := float64(len(t.among(t.Depth()+1, nodes)))
	if n < 2 {
		return 1e3 * seconds, true
	}
	w := t.weakest(nodes)
	if w.Bandwidth <= 0 {
		return 0, false
	}
	return 1e3 * (seconds + transfer(2*size*(n-1)/n, w.Bandwidth) + 2*(n-1)*float64(w.Latency)/1e9), true
}

// weakest is the least bandwidth and the greatest latency between one rank's node and the next's, and the
// nodes of the link with the least bandwidth. It is assumed if any link is.
type weakest struct {
	Link
	a, b int
}

func (t *Tree) weakest(nodes []int) weakest {
	w := weakest{Link: Link{Bandwidth: math.MaxInt64}}
	for i, a := range nodes {
		b := nodes[(i+1)%len(nodes)]
		if a == b {
			continue
		}
		l := t.Between(a, b)
		if l.Bandwidth < w.Bandwidth {
			w.Bandwidth, w.a, w.b = l.Bandwidth, a, b
		}
		w.Latency, w.Assumed = max(w.Latency, l.Latency), w.Assumed || l.Assumed
	}
	return w
}

// transfer returns the seconds of sending bytes at kBps.
func transfer(bytes float64, kBps int64) float64 { return bytes / (float64(kBps) * 1e3) }

func distinctNodes(nodes []int) (out []int) {
	seen := map[int]bool{}
	for _, n := range nodes {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// Compat holds the estimates of the requirement's analyser, in milliseconds. They use nodes and links
// only: nothing inside a node and, except for Other, no latency.
type Compat struct {
	Ring  float64 `json:"ring"`  // 2(n-1)/n · size / the least bandwidth of neighbours
	Tree  float64 `json:"tree"`  // 2⌈log2 n⌉ · size / the mean bandwidth of all pairs
	Other float64 `json:"other"` // n · the mean latency of all pairs
}

// BinaryUnits and DecimalUnits are the megabytes in a gigabyte for Tree.Compat. The requirement's figures
// are binary.
const (
	BinaryUnits  = 1024
	DecimalUnits = 1000
)

// Compat returns the requirement's estimates for an all-reduce of that many megabytes between the nodes
// of the ranks. A repeated node is used once, at its first place. They are not known (zero, false) if the
// bandwidth between two of the nodes is not.
func (t *Tree) Compat(nodes []int, megabytes float64, perGigabyte float64) (c Compat, known bool) {
	list := distinctNodes(nodes)
	n := len(list)
	if n < 2 {
		return Compat{}, true
	}
	least := math.Inf(1)
	var bandwidth, latency int64 // sums of whole numbers, so that they are exact
	for i, a := range list {
		least = min(least, float64(t.Between(a, list[(i+1)%n]).Bandwidth)/1e6)
		for _, b := range list[i+1:] {
			l := t.Between(a, b)
			if l.Bandwidth <= 0 {
				return Compat{}, false
			}
			bandwidth += l.Bandwidth
			latency += l.Latency
		}
	}
	pairs := float64(n * (n - 1) / 2)
	size := megabytes / perGigabyte
	rounds := float64(bits.Len(uint(n - 1)))
	return Compat{
		Ring:  1e3 * 2 * float64(n-1) * size / (float64(n) * least),
		Tree:  1e3 * 2 * rounds * size / (float64(bandwidth) / pairs / 1e6),
		Other: float64(latency) * float64(n) / pairs / 1e6,
	}, true
}

// SampleLinks returns the links of the requirement's sample cluster: of two nodes of one innermost
// domain, and of any others. They are meant for fabrics of which only the domains are known.
func SampleLinks() (inside, outside Link) {
	return Link{Bandwidth: 100_000_000, Latency: 100_000, Hops: 1, Assumed: true}, Link{Bandwidth: 50_000_000, Latency: 500_000, Hops: 3, Assumed: true}
}
