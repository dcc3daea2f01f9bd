// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"sync"
	"time"
)

// changes are the nodes of which something changed since the waker took them last.
type changes struct {
	mu    sync.Mutex
	nodes []*Node // guarded by mu, as are changed and change of each
	due   chan struct{}
}

// change is what the waker is told of a node.
type change struct {
	at time.Time
	// leaseBack: a Lease is renewed again. That it had run out nobody told.
	leaseBack bool
}

// Changed says that something of a node changed. It may be called under any lock but the
// waker's.
func (k *Waker) Changed(n *Node) { k.changes.add(n, change{at: k.clock.Now()}) }

// LeaseBack says that the Lease of a node's program had run out and is renewed again. It may be
// called under any lock but the waker's.
func (k *Waker) LeaseBack(n *Node) {
	k.changes.add(n, change{at: k.clock.Now(), leaseBack: true})
}

// Forget ends the use of a Node whose node went. It is called once Cluster.Nodes does not yield it
// any more.
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

// note puts a node on the list. It needs c.mu.
func (c *changes) note(n *Node) {
	if !n.changed {
		n.changed, n.change = true, change{}
		c.nodes = append(c.nodes, n)
	}
}

// ring has the waker go through the list soon.
func (c *changes) ring() {
	select {
	case c.due <- struct{}{}:
	default: // it will do so anyway
	}
}

// take moves the changes to those that the waker has yet to look at. It returns the nodes that are
// forgotten, which are none of these.
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
