// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// Changes passes on what changes of a node: to the memo of its usage, the index of nodes and the
// waker, and to listeners.
type Changes struct {
	cells      *cells
	topologies *topologies.Cache
	waker      *waking.Waker
	index      *candidates.Index
	listeners  listeners
	onFreed    func() // it must not block
}

// touch says that a node's graph or reservations changed.
func (ch *Changes) touch(x *cell) {
	ch.waker.Changed(&x.waking)
	ch.index.Changed(&x.candidate)
}

// touchNode says that the scheduler's snapshot of a node changed or soon will.
func (ch *Changes) touchNode(name string) {
	if x := ch.cells.get(name); x != nil {
		ch.waker.Changed(&x.waking)
		ch.index.ChangesSoon(&x.candidate)
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
func (ch *Changes) OnRoom(fn func()) {
	for {
		old := ch.listeners.fns.Load()
		all := []func(){fn}
		if old != nil {
			all = append(slices.Clone(*old), fn)
		}
		if ch.listeners.fns.CompareAndSwap(old, &all) {
			return
		}
	}
}

// freed wakes the pods that no event of the scheduler's would wake: devices may have come free.
func (ch *Changes) freed() {
	ch.onFreed()
	ch.listeners.tell()
}

// changed makes the remembered usage of a node void, and touches it.
func (ch *Changes) changed(x *cell) {
	x.candidate.Revision.Add(1)
	ch.touch(x)
}

// tell passes on what a step of the table of reservations changed.
func (ch *Changes) tell(c reservations.Change) {
	for _, n := range c.Nodes {
		ch.changed(ch.cells.ensure(n.Name()))
	}
	for _, n := range c.Soon {
		ch.touchNode(n.Name())
	}
	switch {
	case c.Freed:
		ch.freed()
	case c.Left: // the scheduler's own events wake single pods
		ch.listeners.tell()
	}
}

// passOn tells everybody whom a change of topologies concerns.
func (ch *Changes) passOn(ctx context.Context) topologies.PassOn {
	return func(c topologies.Change, err error) {
		if err != nil {
			malformedTopologies.Inc()
			klog.FromContext(ctx).Error(err, "Ignoring what cannot be read of a topology", "node", c.Node)
		}
		ch.takeNote(&c)
		if c.Unserved {
			ch.waker.OpenGates() // they are told why they wait
		}
		if c.Freed || c.Unserved {
			ch.freed()
		}
	}
}

// takeNote makes remembered usages void, and the index and the waker look at the nodes again.
func (ch *Changes) takeNote(c *topologies.Change) {
	if c.Node == "" {
		return
	}
	x := ch.cells.ensure(c.Node) // also of an object that cannot be read: Diagnose tells of it
	if c.Changed {
		ch.topologyChanged(x, x.entry.Node() == nil)
	}
	for _, name := range c.Others {
		ch.topologyChanged(ch.cells.ensure(name), true)
	}
}

// topologyChanged tells of a node whose Entry says something else now. With forget the
// remembered usage goes at once: it keeps a graph in memory that is used no more.
func (ch *Changes) topologyChanged(x *cell, forget bool) {
	if forget {
		x.usage.Store(nil)
	}
	ch.changed(x)
}

// leaseBack tells whoever waits that the Lease of a node's program had run out and is
// renewed again.
func (ch *Changes) leaseBack(name string) {
	if x := ch.cells.get(nodelease.NodeOf(name)); x != nil {
		ch.waker.LeaseBack(&x.waking)
		ch.changed(x)
	}
}

// leaseGone takes note that the Lease of a node's program was deleted.
func (ch *Changes) leaseGone(name string) {
	ch.topologies.LeaseGone(name)
	if x := ch.cells.get(nodelease.NodeOf(name)); x != nil {
		ch.changed(x)
	}
}
