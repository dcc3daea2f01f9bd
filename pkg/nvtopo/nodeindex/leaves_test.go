// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// running is a pod on a node.
type running struct {
	node int
	set  nvtopo.Mask
}

// cluster is machines of one kind, with pods that come and go.
type cluster struct {
	index  *Index
	tables *nvtopo.Tables
	places Places
	free   []nvtopo.Mask // by node
	pods   []running
	used   int
}

func (c *cluster) change(node int, free nvtopo.Mask) {
	c.used += c.free[node].Len() - free.Len()
	c.free[node] = free
	c.index.Put(node, Machine{Tables: c.tables, Healthy: 0xff, Free: free})
}

// wholeLeaf is the number of whole nodes of the leaf that has most.
func (c *cluster) wholeLeaf() int {
	whole := make([]int, len(c.places.Spine))
	for node, free := range c.free {
		if free == 0xff {
			whole[c.places.Leaf[node]]++
		}
	}
	return slices.Max(whole)
}

// churn keeps a cluster of 25 leaves of 8 nodes at a load by pods of 1, 2, 4 and 8 GPUs that
// come and go, and returns in how many of a thousand moments some leaf had so many whole nodes.
func churn(t *testing.T, seed uint64, load float64, knowsPlaces bool) (moments [9]int) {
	t.Helper()
	const nodes, leafSize = 200, 8
	c := &cluster{index: NewIndex(), tables: tables(t, "dgx-h100")[0], free: make([]nvtopo.Mask, nodes)}
	for node := range nodes {
		c.places.Leaf = append(c.places.Leaf, node%(nodes/leafSize)) // names are independent of places
	}
	for leaf := range nodes / leafSize {
		c.places.Spine = append(c.places.Spine, leaf%3)
	}
	if knowsPlaces {
		c.index.SetPlaces(&c.places)
	}
	for node := range nodes {
		c.change(node, 0xff)
	}
	c.used = 0
	r := rand.New(rand.NewPCG(seed, 5))
	w := DefaultOrder()
	sizes := []int{1, 1, 1, 1, 1, 2, 2, 4, 4, 8}
	for step := range 12_000 {
		for float64(c.used) > load*8*nodes {
			at := r.IntN(len(c.pods))
			p := c.pods[at]
			c.pods[at] = c.pods[len(c.pods)-1]
			c.pods = c.pods[:len(c.pods)-1]
			c.change(p.node, c.free[p.node]|p.set)
		}
		if node, o, ok := c.index.Best(&Demand{GPUs: sizes[r.IntN(len(sizes))]}, &w); ok {
			c.change(node, c.free[node]&^o.Set)
			c.pods = append(c.pods, running{node, o.Set})
		}
		if step >= 2000 && step%10 == 0 {
			for n := range c.wholeLeaf() {
				moments[n+1]++
			}
		}
	}
	return moments
}

// TestWholeLeaves: leaves stay whole beside single pods. It measures how often a gang of whole nodes
// would find a leaf that has them.
func TestWholeLeaves(t *testing.T) {
	for seed := range uint64(3) {
		for load, want := range map[float64]struct{ nodes, moments int }{0.8: {4, 950}, 0.9: {4, 900}} {
			without, with := churn(t, seed, load, false), churn(t, seed, load, true)
			t.Logf("seed %d, load %g: moments of 1000 with a leaf of at least 1, 2, … whole nodes: %v, with the fabric %v", seed, load, without[1:], with[1:])
			if got := with[want.nodes]; got < want.moments || got <= without[want.nodes] {
				t.Errorf("seed %d, load %g: a leaf has %d whole nodes in %d moments of 1000, without the fabric in %d; want at least %d",
					seed, load, want.nodes, got, without[want.nodes], want.moments)
			}
		}
	}
}
