// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"sync"
	"time"
)

// SnapshotDelay is how long a node is looked at again after an event of the informers: the
// scheduler's cache hears of it in another goroutine, and the snapshot from the cache. What
// comes later than that is left to the stride.
const SnapshotDelay = 250 * time.Millisecond

// changes are the nodes that changed since the last refresh, or that an event of the last
// SnapshotDelay was about.
type changes struct {
	mu    sync.Mutex
	nodes []*Node // guarded by mu, as is the lookUntil of each
}

// Changed says that a node's topology or reservations changed, which the next refresh sees.
// It may be called under any lock.
func (x *Index) Changed(n *Node) { x.changes.add(n, x.clock.Now()) }

// ChangesSoon says that the scheduler's snapshot of a node changed or soon will. It may be
// called under any lock.
func (x *Index) ChangesSoon(n *Node) { x.changes.add(n, x.clock.Now().Add(SnapshotDelay)) }

// Forget ends the use of Nodes whose nodes went. It is called once find returns others for their
// names.
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

// take appends the nodes to look at now to into, and forgets those whose time is over.
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
