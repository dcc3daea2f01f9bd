// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"sync"
	"time"
)

// changes has the nodes that changed since the waker took them last.
type changes struct {
	mu    sync.Mutex
	nodes []*Node // guarded by mu, as are changed and change of each
	due   chan struct{}
}

// change describes the changes of a node since the waker took it last.
type change struct {
	at time.Time
	// leaseBack: a Lease was renewed after it had expired, which caused no event.
	leaseBack bool
}

// Changed marks a node as changed. It may be called under any lock but the waker's.
func (k *Waker) Changed(n *Node) { k.changes.add(n, change{at: k.clock.Now()}) }

// LeaseBack marks a node as changed because the Lease of its program was renewed after it had expired. It
// may be called under any lock but the waker's.
func (k *Waker) LeaseBack(n *Node) {
	k.changes.add(n, change{at: k.clock.Now(), leaseBack: true})
}

// Forget drops the entry of a node that is gone. Call it once Cluster.Nodes does not yield it any more.
func (k *Waker) Forget(n *Node) {
	k.changes.mu.Lock()
	n.forgotten = true
	k.changes.note(n)
	k.changes.mu.Unlock()
	k.changes.ring()
}

func (c *changes) add(n *Node, what change) {
	c.mu.Lock()
	if !n.forgotten {
		c.note(n)
		n.change = change{at: what.at, leaseBack: what.leaseBack || n.change.leaseBack}
	}
	c.mu.Unlock()
	c.ring()
}

// note adds a node to the list. The caller holds c.mu.
func (c *changes) note(n *Node) {
	if !n.changed {
		n.changed, n.change = true, change{}
		c.nodes = append(c.nodes, n)
	}
}

// ring makes the waker process the list soon.
func (c *changes) ring() {
	select {
	case c.due <- struct{}{}:
	default: // it is due already
	}
}

// take moves the changes to into, the nodes that the waker has yet to process. It returns the forgotten
// nodes, which it removes from into.
func (c *changes) take(into map[*Node]change) (forgotten []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.changed = false
		if n.forgotten {
			delete(into, n)
			forgotten = append(forgotten, n)
			continue
		}
		into[n] = change{at: n.change.at, leaseBack: n.change.leaseBack || into[n].leaseBack}
	}
	clear(c.nodes)
	c.nodes = c.nodes[:0]
	return forgotten
}
