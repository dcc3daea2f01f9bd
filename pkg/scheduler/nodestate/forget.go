// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

const (
	// forgetInterval is the time between searches for nodes that are gone.
	forgetInterval = time.Minute
	// forgetAfter is how long a node is gone before it is forgotten. A node that restarts, or is made again
	// under its name, is back by then. Correctness does not depend on it: see forget.
	forgetAfter = 5 * time.Minute
)

// nodeCollector forgets nodes that are gone.
type nodeCollector struct {
	clock clock.WithTicker
	table *AllocationTable
	waker *waking.Waker
	index *candidates.Index
}

// run forgets nodes that are gone, until ctx ends.
func (c *nodeCollector) run(ctx context.Context) {
	ticker := c.clock.NewTicker(forgetInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		c.forgetNodes()
	}
}

// forgetNodes drops the entries of nodes that are gone, so that the tables do not grow with each node
// that a cluster ever had. It must be called from one goroutine only.
func (c *nodeCollector) forgetNodes() {
	now := c.clock.Now()
	var forgotten []*candidates.Node
	for name, x := range c.table.cache.cells.all() {
		if c.table.cache.listers.nodes.node(name) != nil || x.entry.Object() != "" {
			x.goneSince = time.Time{}
			continue
		}
		if x.goneSince.IsZero() {
			x.goneSince = now
		}
		if now.Sub(x.goneSince) < forgetAfter || !c.table.forgetNode(x) {
			continue
		}
		forgotten = append(forgotten, &x.candidate)
		c.waker.Forget(&x.waking)
		if c.table.cache.listers.nodes.node(name) != nil || c.table.cache.topologies.Node(name) != nil {
			c.table.changes.changed(c.table.cache.cells.ensure(name)) // it came back, and the change went to the forgotten cell
		}
	}
	if len(forgotten) > 0 {
		c.index.Forget(forgotten)
	}
}
