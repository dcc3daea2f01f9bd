// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// sizes are the numbers of GPUs that pods of the trace request, ascending, with the constraint of such a
// pod and the share of the pods.
type sizes struct {
	gpus        []int
	constraints []nvtopo.Constraint
	pods        []int64 // of the jobs that are replayed
	total       int64
}

func (s *sizes) at(gpus int) int {
	i, _ := slices.BinarySearch(s.gpus, gpus)
	return i
}

// unusable returns the free GPUs of one machine that the next pod is expected to leave unusable, times
// the number of pods: all of them if it requests more. This is the fragmentation of FGD (ATC'23) for
// whole GPUs.
func (s *sizes) unusable(free int64) int64 {
	var refused int64
	for i, n := range s.gpus {
		if int64(n) > free {
			refused += s.pods[i]
		}
	}
	return free * refused
}

// state is the cluster during a replay.
type state struct {
	sizes sizes
	nodes []node
	gpus  int64 // healthy ones of all nodes

	fragments []int64      // unusable, by free GPUs of a node
	best      []ringCounts // by position in sizes

	// Sums over the nodes.
	free, counted, stranded, unusable int64
}

type node struct {
	kind    *kind
	healthy nvtopo.Mask
	speed   int64 // kB/s: the ring of all its healthy GPUs
	level   *level
	singles int   // pods of jobs that have no other pod
	pods    []int // that run, by their GPUs
}

func (n *node) free() nvtopo.Mask { return n.level.free }

// change sets the free set of a node.
func (s *state) change(at int, free nvtopo.Mask) {
	n := &s.nodes[at]
	s.add(n.level, -1)
	n.level = n.kind.level(free, &s.sizes)
	s.add(n.level, 1)
}

func (s *state) add(l *level, sign int64) {
	s.free += sign * l.count
	s.counted += sign * l.counted
	s.stranded += sign * l.stranded
	s.unusable += sign * s.fragments[l.count]
	for i, ring := range l.rings {
		if ring != noRing {
			s.best[i].add(ring, sign)
		}
	}
}

// ringCounts counts nodes by the ring they can give; machines have a handful of
// different ones.
type ringCounts struct {
	rings []int64
	nodes []int64
}

func (c *ringCounts) add(ring, n int64) {
	i, ok := slices.BinarySearch(c.rings, ring)
	if !ok {
		c.rings = slices.Insert(c.rings, i, ring)
		c.nodes = slices.Insert(c.nodes, i, 0)
	}
	c.nodes[i] += n
}

// best returns the fastest ring that some node can give; 0 when none can.
func (c *ringCounts) best() int64 {
	for i, ring := range slices.Backward(c.rings) {
		if c.nodes[i] > 0 {
			return ring
		}
	}
	return 0
}
