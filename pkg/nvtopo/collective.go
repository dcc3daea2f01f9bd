// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"fmt"
	"math/bits"
	"strings"
)

// Algorithm is the algorithm of a collective operation.
type Algorithm uint8

// The algorithms.
const (
	AlgorithmRing             Algorithm = iota // neighbours on a ring pass pieces of 1/n
	AlgorithmTree                              // a binomial tree, unpipelined
	AlgorithmRecursiveHalving                  // partners at growing distance exchange halves (or doubles)
)

var algorithmNames = [...]string{"ring", "tree", "recursive-halving"}

// String returns the name that ParseAlgorithm parses.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// ParseAlgorithm parses an algorithm's name, also with underscores.
func ParseAlgorithm(s string) (Algorithm, error) {
	for i, name := range algorithmNames {
		if name == strings.ReplaceAll(s, "_", "-") {
			return Algorithm(i), nil
		}
	}
	return AlgorithmRing, fmt.Errorf("unknown algorithm %q, want one of ring, tree, recursive-halving", s)
}

// CostModel is the alpha-beta model of a set of GPUs: a message of b bytes takes
// Latency + b/Bandwidth. Reduction itself costs nothing, and every GPU sends
// and receives one message at a time.
type CostModel struct {
	Bandwidth int64 // kB/s, one direction: the ring bottleneck
	Latency   int64 // ns of one message
}

// seconds returns the time of the given number of messages of the given bytes in total.
func (m CostModel) seconds(messages int, bytes float64) float64 {
	t := float64(messages) * float64(m.Latency) / 1e9
	if bytes > 0 {
		t += bytes / (float64(m.Bandwidth) * 1e3)
	}
	return t
}

// rounds returns the ceiling of the binary logarithm of n.
func rounds(n int) int { return bits.Len(uint(n - 1)) }

// AllReduce returns the seconds in which n GPUs each get the sum of all their
// buffers of size bytes:
//
//	ring               2(n-1)/n · size/B + 2(n-1) · L
//	tree               2⌈log2 n⌉ · (size/B + L), reduce then broadcast
//	recursive-halving  2(p-1)/p · size/B + 2·log2 p · L, p the greatest power of
//	                   two in n, and 2(size/B + L) more when p < n: the GPUs
//	                   beyond p hand theirs in first and get the sum last
//
// One GPU (or none) takes no time. Sources: Patarasuk and Yuan 2009 for the
// ring, Thakur, Rabenseifner and Gropp 2005 for the others.
func (m CostModel) AllReduce(a Algorithm, n int, size float64) float64 {
	if n < 2 {
		return 0
	}
	switch a {
	case AlgorithmTree:
		return float64(2*rounds(n)) * m.seconds(1, size)
	case AlgorithmRecursiveHalving:
		p := powerOfTwo(n)
		t := m.seconds(2*rounds(p), 2*size*float64(p-1)/float64(p))
		if p < n {
			t += 2 * m.seconds(1, size)
		}
		return t
	case AlgorithmRing:
	}
	return m.seconds(2*(n-1), 2*size*float64(n-1)/float64(n))
}

// AllGather returns the seconds in which n GPUs that hold size/n bytes each all
// get the size bytes:
//
//	ring               (n-1)/n · size/B + (n-1) · L
//	tree               (n-1)/n · size/B + ⌈log2 n⌉ · L to gather, ⌈log2 n⌉ · (size/B + L) to broadcast
//	recursive-halving  (p-1)/p · size/B + log2 p · L (here: doubling), and when p < n
//	                   size/n/B + L before and size/B + L after
func (m CostModel) AllGather(a Algorithm, n int, size float64) float64 {
	if n < 2 {
		return 0
	}
	share := size * float64(n-1) / float64(n)
	switch a {
	case AlgorithmTree:
		return m.seconds(rounds(n), share) + float64(rounds(n))*m.seconds(1, size)
	case AlgorithmRecursiveHalving:
		p := powerOfTwo(n)
		t := m.seconds(rounds(p), size*float64(p-1)/float64(p))
		if p < n {
			t += m.seconds(1, size/float64(n)) + m.seconds(1, size)
		}
		return t
	case AlgorithmRing:
	}
	return m.seconds(n-1, share)
}

// ReduceScatter returns the seconds in which n GPUs with buffers of size bytes
// each get their 1/n of the sum. It is an all-gather run backwards and costs
// the same with every algorithm here.
func (m CostModel) ReduceScatter(a Algorithm, n int, size float64) float64 {
	return m.AllGather(a, n, size)
}

// powerOfTwo returns the greatest power of two not above n.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
