// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

const (
	// forgetInterval is how often the tables by node name are searched for nodes that are gone.
	forgetInterval = time.Minute
	// forgetAfter is how long a node is gone before it is forgotten. One that restarts, or is made
	// anew under its name, is back by then. Nothing depends on it: see forget.
	forgetAfter = 5 * time.Minute
)

// watchGone forgets nodes that are gone, until ctx ends.
func (s *State) watchGone(ctx context.Context) {
	ticker := s.clock.NewTicker(forgetInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		s.forgetNodes()
	}
}

// forgetNodes drops all that is kept by the names of nodes that are gone, so that the tables do not
// grow with each node that a cluster ever had. It is for one goroutine.
func (s *State) forgetNodes() {
	now := s.clock.Now()
	var forgotten []*candidates.Node
	for name, x := range s.cells.all() {
		if s.listers.nodes.node(name) != nil || x.entry.Object() != "" {
			x.goneSince = time.Time{}
			continue
		}
		if x.goneSince.IsZero() {
			x.goneSince = now
		}
		if now.Sub(x.goneSince) < forgetAfter || !s.forget(x) {
			continue
		}
		forgotten = append(forgotten, &x.candidate)
		s.waker.Forget(&x.waking)
		if s.listers.nodes.node(name) != nil || s.topologies.Node(name) != nil {
			s.changes.changed(s.cells.ensure(name)) // it came back, and the cell that is forgotten was told
		}
	}
	if len(forgotten) > 0 {
		s.index.Forget(forgotten)
	}
}

// forget takes the cell of a node out, unless something of the node exists or is reserved there.
//
// A cycle that found the cell before may go on using it: it reads that there is no graph. It adds no
// reservation to it: who adds one finds the cell while State.choosing is held, or compares it then.
// The waker, the index and Stampers keep cells for longer, and are told, or compare
// cells.forgotten.
func (s *State) forget(x *cell) bool {
	s.choosing.Lock()
	defer s.choosing.Unlock()
	return s.cells.forget(x, func() bool {
		reserved := x.reserved.View()
		return s.listers.nodes.node(x.name) == nil && len(reserved.Reservations)+len(reserved.Nominated) == 0 && s.topologies.Forget(x.name)
	})
}
