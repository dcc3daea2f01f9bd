// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"sync/atomic"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Source is what is known of the node of one name. The index asks it while Index.mu is
// held.
type Source interface {
	// Topology returns the node's topology, whether it counts or not; nil if there is none.
	Topology() *usage.Node
	// CheckExporter says whether somebody vouches for the topology n now.
	CheckExporter(n *usage.Node, now time.Time) placement.Reason
	// Usage returns what is used of the topology n on the node as info shows it.
	Usage(n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage
}

// Node is what the index keeps of the node of one name. Its pointer is its identity.
type Node struct {
	// Revision is another number after each change of the Source's answers. It stands here,
	// and not behind the interface, since each cycle reads it of all nodes that changed.
	Revision atomic.Uint64
	source   Source
	// position is where the last cycle's list had the node; guarded by Index.mu.
	position int
	// lookUntil is until when each refresh looks at the node, zero if none is to. forgotten: it is
	// not the node's any more. Both are guarded by changes.mu.
	lookUntil time.Time
	forgotten bool
}

// Init makes n the Node of what source knows. Call it before any other use.
func (n *Node) Init(source Source) { n.source = source }
