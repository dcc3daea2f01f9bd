// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
)

// Whatever changes of a node is told from here: to the memo of its usage, the index of nodes
// and the waker.

// touch says that a node's graph or reservations changed.
func (s *State) touch(x *cell) {
	s.waker.Changed(&x.waking)
	s.index.Changed(&x.candidate)
}

// touchNode says that the scheduler's snapshot of a node changed or soon will.
func (s *State) touchNode(name string) {
	if x := s.cells.get(name); x != nil {
		s.waker.Changed(&x.waking)
		s.index.ChangesSoon(&x.candidate)
	}
}

// listeners are told when some node may have room that it had not.
type listeners struct {
	fns atomic.Pointer[[]func()] // replaced as a whole
}

func (l *listeners) tell() {
	if fns := l.fns.Load(); fns != nil {
		for _, fn := range *fns {
			fn()
		}
	}
}

// OnRoom has fn called when some pods may fit that did not: a pod ended or left its node, what
// was reserved for one is dropped, a graph counts again or has more to give, the first lists are
// in. What a Node itself says, it does not tell. fn may be called under locks of ours: it must not block, and
// call nothing of ours.
func (s *State) OnRoom(fn func()) {
	for {
		old := s.listeners.fns.Load()
		all := []func(){fn}
		if old != nil {
			all = append(slices.Clone(*old), fn)
		}
		if s.listeners.fns.CompareAndSwap(old, &all) {
			return
		}
	}
}

// freed wakes the pods that no event of the scheduler's would wake: devices may have come free.
func (s *State) freed() {
	s.onFreed()
	s.listeners.tell()
}

// changed makes the remembered usage of a node void, and touches it.
func (s *State) changed(x *cell) {
	x.candidate.Revision.Add(1)
	s.touch(x)
}

// tell passes on what a step of the table of reservations changed.
func (s *State) tell(c reservations.Change) {
	for _, n := range c.Nodes {
		s.changed(s.cells.ensure(n.Name()))
	}
	for _, n := range c.Soon {
		s.touchNode(n.Name())
	}
	switch {
	case c.Freed:
		s.freed()
	case c.Left: // the scheduler's own events wake single pods
		s.listeners.tell()
	}
}

// passOn tells everybody whom a change of topologies concerns.
func (s *State) passOn(ctx context.Context) topologies.PassOn {
	return func(c topologies.Change, err error) {
		if err != nil {
			malformedTopologies.Inc()
			klog.FromContext(ctx).Error(err, "Ignoring what cannot be read of a topology", "node", c.Node)
		}
		s.takeNote(&c)
		if c.Unserved {
			s.waker.OpenGates() // they are told why they wait
		}
		if c.Freed || c.Unserved {
			s.freed()
		}
	}
}

// takeNote makes remembered usages void, and the index and the waker look at the nodes again.
func (s *State) takeNote(c *topologies.Change) {
	if c.Node == "" {
		return
	}
	x := s.cells.ensure(c.Node) // also of an object that cannot be read: Diagnose tells of it
	if c.Changed {
		s.topologyChanged(x, x.entry.Node() == nil)
	}
	for _, name := range c.Others {
		s.topologyChanged(s.cells.ensure(name), true)
	}
}

// topologyChanged tells of a node whose Entry says something else now. With forget the
// remembered usage goes at once: it keeps a graph in memory that is used no more.
func (s *State) topologyChanged(x *cell, forget bool) {
	if forget {
		x.usage.Store(nil)
	}
	s.changed(x)
}

// leaseBack tells whoever waits that the Lease of a node's program had run out and is
// renewed again.
func (s *State) leaseBack(name string) {
	if x := s.cells.get(nodelease.NodeOf(name)); x != nil {
		s.waker.LeaseBack(&x.waking)
		s.changed(x)
	}
}

// leaseGone takes note that the Lease of a node's program was deleted.
func (s *State) leaseGone(name string) {
	s.topologies.LeaseGone(name)
	if x := s.cells.get(nodelease.NodeOf(name)); x != nil {
		s.changed(x)
	}
}
