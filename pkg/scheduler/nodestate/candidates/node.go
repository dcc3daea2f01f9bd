// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"sync/atomic"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Source provides the known state of the node of one name. The index calls it while Index.mu is held.
type Source interface {
	// Topology returns the node's topology, valid or not; nil if there is none.
	Topology() *usage.Node
	// CheckExporter returns Fits if a live exporter vouches for the topology n now, else the reason.
	CheckExporter(n *usage.Node, now time.Time) placement.Reason
	// Usage returns the usage of the topology n on the node with the pods of info.
	Usage(n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage
}

// Node is the index's entry for the node of one name. Its pointer is its identity.
type Node struct {
	// Revision changes with each change of the Source's results. It is a field and not a method of the
	// interface, because each cycle reads it for all nodes that changed.
	Revision atomic.Uint64
	source   Source
	// position is the node's position in the last cycle's list; guarded by Index.mu.
	position int
	// lookUntil is the time until which each refresh checks the node, or zero. forgotten: the entry is no
	// longer the node's. Both are guarded by changes.mu.
	lookUntil time.Time
	forgotten bool
}

// Init makes n the entry for the node of source. Call it before any other use.
func (n *Node) Init(source Source) { n.source = source }
