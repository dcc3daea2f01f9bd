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

// Changes distributes changes of a node to the remembered usage, the index of nodes, the waker and
// listeners.
type Changes struct {
	cells      *cells
	topologies *topologies.Cache
	waker      *waking.Waker
	index      *candidates.Index
	listeners  listeners
	onFreed    func() // it must not block
}

// touch marks that a node's graph or reservations changed.
func (ch *Changes) touch(x *cell) {
	ch.waker.Changed(&x.waking)
	ch.index.Changed(&x.candidate)
}

// touchNode marks that the scheduler's snapshot of a node changed or soon will.
func (ch *Changes) touchNode(name string) {
	if x := ch.cells.get(name); x != nil {
		ch.waker.Changed(&x.waking)
		ch.index.ChangesSoon(&x.candidate)
	}
}

// listeners are called when some node may have new room.
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

// OnRoom registers fn to be called when pods may fit that did not: a pod ended or left its node, a
// reservation was dropped, a graph became valid again or gained devices, or the first lists are in. It is
// not called for changes of Node objects. fn may be called under locks of this package, so it must not
// block, nor call this package.
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

// freed wakes pods that no event of kube-scheduler's would wake, because devices may have become free.
func (ch *Changes) freed() {
	ch.onFreed()
	ch.listeners.tell()
}

// changed invalidates the remembered usage of a node, and touches the node.
func (ch *Changes) changed(x *cell) {
	x.candidate.Revision.Add(1)
	ch.touch(x)
}

// tell distributes the changes made by one step of the table of reservations.
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
	case c.Left: // kube-scheduler's own events wake single pods
		ch.listeners.tell()
	}
}

// passOn returns the function that distributes a change of topologies.
func (ch *Changes) passOn(ctx context.Context) topologies.PassOn {
	return func(c topologies.Change, err error) {
		if err != nil {
			malformedTopologies.Inc()
			klog.FromContext(ctx).Error(err, "Ignoring what cannot be read of a topology", "node", c.Node)
		}
		ch.takeNote(&c)
		if c.Unserved {
			ch.waker.OpenGates() // so that they report why they wait
		}
		if c.Freed || c.Unserved {
			ch.freed()
		}
	}
}

// takeNote invalidates remembered usages, and has the index and the waker look at the nodes again.
func (ch *Changes) takeNote(c *topologies.Change) {
	if c.Node == "" {
		return
	}
	x := ch.cells.ensure(c.Node) // also for an object that cannot be read: Diagnose reports it
	if c.Changed {
		ch.topologyChanged(x, x.entry.Node() == nil)
	}
	for _, name := range c.Others {
		ch.topologyChanged(ch.cells.ensure(name), true)
	}
}

// topologyChanged distributes a change of a node's Entry. With forget, the remembered usage is dropped at
// once, so that it does not keep an unused graph in memory.
func (ch *Changes) topologyChanged(x *cell, forget bool) {
	if forget {
		x.usage.Store(nil)
	}
	ch.changed(x)
}

// leaseBack wakes waiting pods after the Lease of a node's program had expired and was renewed.
func (ch *Changes) leaseBack(name string) {
	if x := ch.cells.get(nodelease.NodeOf(name)); x != nil {
		ch.waker.LeaseBack(&x.waking)
		ch.changed(x)
	}
}

// leaseGone handles the deletion of the Lease of a node's program.
func (ch *Changes) leaseGone(name string) {
	ch.topologies.LeaseGone(name)
	if x := ch.cells.get(nodelease.NodeOf(name)); x != nil {
		ch.changed(x)
	}
}
