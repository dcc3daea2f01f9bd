// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Sizes are the group sizes that are counted, greatest first.
func Sizes() []int { return placement.GroupSizes() }

// counter counts groups of GPUs of nodes.
type counter struct {
	*placement.GroupCounter

	minLink nvtopo.Class // the zero Class: any
}

// newSupply is the supply of nothing.
func newSupply() Supply {
	s := Supply{}
	for _, k := range Sizes() {
		s.Slots = append(s.Slots, Slots{GPUs: k})
	}
	return s
}

// supply is what one node has.
func (c *counter) supply(n *Node) Supply {
	s := newSupply()
	s.Nodes = 1
	if n.accel < 0 {
		return s
	}
	s.GPUs = len(n.GPUs)
	s.UsedGPUs = n.used.Used[n.accel].Len() + n.CountedGPUs - n.used.Withheld[n.accel]
	for i := range n.Pods {
		s.UsedGPUs += n.Pods[i].AbsentGPUs
	}
	for i := range n.GPUs {
		if state := n.GPUs[i].State; state != Used && state != Free {
			s.BadGPUs++
		}
	}
	if !n.Open() {
		return s
	}
	s.FreeGPUs, s.JoinedGPUs = n.free(), n.joined(c.minLink)
	for i := range s.Slots {
		at := &s.Slots[i]
		k := at.GPUs
		now := c.Count(n.used, n.accel, k, n.input.Now, placement.BesideInput(n.input))
		most := c.Capacity(n.known, n.accel, k, n.input.Now)
		at.Free, at.Capacity = now.Any, most.Any
		if class, ok := c.BestClass(n.Tables(), k); ok && most.Any > 0 {
			at.Linked = []Linked{{Class: class.String(), class: class, FreeGPUs: placement.Intact(n.used, n.accel), Free: now.Linked, Capacity: most.Linked}}
		}
		at.settle()
	}
	return s
}

// settle works out what follows from the numbers.
func (s *Slots) settle() {
	for i := range s.Linked {
		l := &s.Linked[i]
		l.Ideal, l.Fragmentation = min(l.Capacity, l.FreeGPUs/s.GPUs), 0
		if l.Ideal > 0 {
			l.Fragmentation = 1 - float64(l.Free)/float64(l.Ideal)
		}
	}
}

// add takes in the supply of another part of the cluster.
func (s *Supply) add(o *Supply) {
	s.Nodes += o.Nodes
	s.GPUs += o.GPUs
	s.UsedGPUs += o.UsedGPUs
	s.FreeGPUs += o.FreeGPUs
	s.JoinedGPUs += o.JoinedGPUs
	s.BadGPUs += o.BadGPUs
	for i := range s.Slots {
		s.Slots[i].add(&o.Slots[i])
	}
}

func (s *Slots) add(o *Slots) {
	s.Free += o.Free
	s.Capacity += o.Capacity
	for _, l := range o.Linked {
		at := slices.IndexFunc(s.Linked, func(mine Linked) bool { return mine.class == l.class })
		if at < 0 {
			s.Linked = append(s.Linked, l)
			continue
		}
		mine := &s.Linked[at]
		mine.Free += l.Free
		mine.Capacity += l.Capacity
		mine.FreeGPUs += l.FreeGPUs
	}
	slices.SortStableFunc(s.Linked, func(a, b Linked) int {
		switch {
		case a.class == b.class:
			return 0
		case a.class.AtLeast(b.class):
			return -1
		}
		return 1
	})
	s.settle()
}

// rings are the best rings there are now of the sizes that are counted, and the largest free
// linked group. Among GPUs that pods known by number may hold there are none, and none is of more
// GPUs than the node has left by number.
func (c *counter) rings(n *Node) (best []Ring, largest *Ring) {
	t := n.Tables()
	free := n.FreeMask() &^ n.known.Accels[n.accel].Degraded
	if n.used.Foreign[n.accel] {
		return nil, nil
	}
	con := c.Demand(2).Constraint
	most := placement.Intact(n.used, n.accel)
	for _, k := range Sizes() {
		if set, ok := t.Pick(free, free, k, con); ok && k > 1 && k <= most {
			best = append(best, *ringOf(t, set))
		}
	}
	for k := most; k > 1 && largest == nil; k-- {
		if set, ok := t.Pick(free, free, k, con); ok && nodeindex.BandOf(t, set) == nodeindex.BandBest {
			largest = ringOf(t, set)
		}
	}
	return best, largest
}
