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

// Source provides the known state of the node of one name. The waker holds no lock while it calls it.
type Source interface {
	// Node returns the Node from the informer; nil if there is none.
	Node() *v1.Node
	// Pods returns the informer's pods that are bound to the node.
	Pods() []*v1.Pod
	// Nominated returns the pods that the scheduling queue has nominated for the node.
	Nominated() []fwk.PodInfo
	// Topology returns the node's topology, valid or not; nil if there is none.
	Topology() *usage.Node
	// CheckGraph returns Fits if the topology n, which may be nil, is valid now for the Node of this UID,
	// else the reason.
	CheckGraph(n *usage.Node, node types.UID) placement.Reason
	// Reserved returns the node's reservations, and the usage of the topology n, which may be nil, with
	// them, the pods of info and the planned reservations. The pod except may take its allocation with
	// unknown outcome again, so that one is ignored.
	Reserved(n *usage.Node, info fwk.NodeInfo, planned []usage.Reservation, except types.UID) Reserved
}

// Reserved has the reservations of a node.
type Reserved struct {
	Pods      []types.UID              // pods with a reservation
	Nominated []*allocation.Allocation // allocations of nominated pods, each identified by its pointer
	Usage     *usage.Usage             // nil without a topology
}

// Cluster provides the known state of all nodes and pods. The waker holds no lock while it calls it.
type Cluster interface {
	// Nodes yields each known node that is not forgotten.
	Nodes() iter.Seq[*Node]
	// Attempts returns the pods whose binding is in progress, and the nodes on which other pods may take an
	// allocation with unknown outcome again.
	Attempts() (binding map[types.UID]bool, again map[types.UID]string)
	// Stored returns the informer's copy of a pod; nil if it is absent.
	Stored(pod *v1.Pod) *v1.Pod
	// Serves reports whether a scheduler profile uses this scheduler's plugins.
	Serves(profile string) bool
	// InGang reports whether a pod is a member of a gang, of a profile that places gangs.
	InGang(pod *v1.Pod) bool
	// Synced reports whether all graphs and Leases that existed at the start are known.
	Synced() bool
}

// Node is the waker's entry for the node of one name. Its pointer is its identity.
type Node struct {
	source Source
	// changed: the waker has yet to process a change of the node. forgotten: the entry is no longer the
	// node's. All are guarded by changes.mu.
	changed   bool
	change    change
	forgotten bool
}

// Init makes n the entry for the node of source. Call it before any other use.
func (n *Node) Init(source Source) { n.source = source }
