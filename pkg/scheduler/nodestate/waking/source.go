// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Source is what is known of the node of one name. The waker holds no lock while it asks.
type Source interface {
	// Node returns the Node as the informer has it; nil if there is none.
	Node() *v1.Node
	// Pods returns the pods that are bound to the node, as the informer has them.
	Pods() []*v1.Pod
	// Nominated returns the pods that the scheduling queue has nominated for the node.
	Nominated() []fwk.PodInfo
	// Topology returns the node's topology, whether it counts or not; nil if there is none.
	Topology() *usage.Node
	// CheckGraph says whether the topology n, which may be nil, counts now for the Node of this
	// UID.
	CheckGraph(n *usage.Node, node types.UID) placement.Reason
	// Reserved returns what the node's reservations say, and what is used of the topology n,
	// which may be nil, with them, the pods of info and what is planned. The pod except may take
	// its choice in doubt again, so that does not count.
	Reserved(n *usage.Node, info fwk.NodeInfo, planned []usage.Reservation, except types.UID) Reserved
}

// Reserved is what the reservations of a node say.
type Reserved struct {
	Pods      []types.UID              // that have a reservation
	Nominated []*allocation.Allocation // what is kept for nominated pods, each by its pointer
	Usage     *usage.Usage             // nil without a topology
}

// Cluster is what is known of all nodes and pods. The waker holds no lock while it asks.
type Cluster interface {
	// Nodes yields each node that was heard of and is not forgotten.
	Nodes() iter.Seq[*Node]
	// Attempts returns the pods whose choice is on its way to be bound, and the nodes on which
	// other pods may take a choice in doubt again.
	Attempts() (binding map[types.UID]bool, again map[types.UID]string)
	// Stored returns the informer's copy of a pod; nil if it is not there.
	Stored(pod *v1.Pod) *v1.Pod
	// Serves reports whether the pods of a scheduler profile are ours.
	Serves(profile string) bool
	// InGang reports whether a pod is a member of a gang, of a profile that places gangs.
	InGang(pod *v1.Pod) bool
	// Synced reports whether all graphs and Leases there were at the start are known.
	Synced() bool
}

// Node is what the waker keeps of the node of one name. Its pointer is its identity.
type Node struct {
	source Source
	// changed: the waker has yet to look at the node for a change. forgotten: it is not the node's
	// any more. All are guarded by changes.mu.
	changed   bool
	change    change
	forgotten bool
}

// Init makes n the Node of what source knows. Call it before any other use.
func (n *Node) Init(source Source) { n.source = source }
