// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"sync"
	"time"
)

// SnapshotDelay is how long each refresh checks a node after an event of the informers: the scheduler's
// cache gets the event in another goroutine, and the snapshot is made from the cache. Later changes are
// found by the stride.
const SnapshotDelay = 250 * time.Millisecond

// changes has the nodes that changed since the last refresh, or had an event within SnapshotDelay.
type changes struct {
	mu    sync.Mutex
	nodes []*Node // guarded by mu, as is the lookUntil of each
}

// Changed marks that a node's topology or reservations changed, which the next refresh sees. It may be
// called under any lock.
func (x *Index) Changed(n *Node) { x.changes.add(n, x.clock.Now()) }

// ChangesSoon marks that the scheduler's snapshot of a node changed or soon will. It may be called under
// any lock.
func (x *Index) ChangesSoon(n *Node) { x.changes.add(n, x.clock.Now().Add(SnapshotDelay)) }

// Forget drops the entries of nodes that are gone. Call it once find returns others for their names.
func (x *Index) Forget(nodes []*Node) {
	x.changes.forget(nodes)
	x.forgets.Add(1)
}

func (c *changes) forget(nodes []*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		n.forgotten = true
	}
	c.nodes = slices.DeleteFunc(c.nodes, func(n *Node) bool { return n.forgotten })
}

func (c *changes) add(n *Node, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.forgotten {
		return
	}
	if n.lookUntil.IsZero() {
		c.nodes = append(c.nodes, n)
	}
	if until.After(n.lookUntil) {
		n.lookUntil = until
	}
}

// take appends the nodes to check now to into, and forgets those whose time is over.
func (c *changes) take(into []*Node, now time.Time) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	into = append(into, c.nodes...)
	rest := c.nodes[:0]
	for _, n := range c.nodes {
		if n.lookUntil.After(now) {
			rest = append(rest, n)
		} else {
			n.lookUntil = time.Time{}
		}
	}
	clear(c.nodes[len(rest):])
	c.nodes = rest
	return into
}
