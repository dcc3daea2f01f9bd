// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Requests are the amounts that the scheduler charges for a pod.
type Requests interface {
	GetMilliCPU() int64
	GetMemory() int64 // bytes
	GetScalarResources() map[v1.ResourceName]int64
}

// Pods is a list of pods.
type Pods interface {
	Len() int
	Pod(i int) *v1.Pod
	Requests(i int) Requests
}

// Reservation is an assumed allocation with its pod's request.
type Reservation struct {
	UID        types.UID
	Allocation *allocation.Allocation
	Request    *podrequest.Request
}

// Reader looks up single pods.
type Reader interface {
	// Allocation returns the allocation on this copy of a pod if it is the pod's own on the node, or nil.
	Allocation(pod *v1.Pod, node string) *allocation.Allocation
	// Stored returns the informer's copy of a pod, or nil.
	Stored(pod *v1.Pod) *v1.Pod
	// Nominated returns the allocation kept on the node for a pod that is nominated for it, or nil.
	Nominated(uid types.UID) *allocation.Allocation
}

// Input is the data from which the usage of a node is computed. Its maker reads the reservations first:
// one is dropped only when its replacement can be read.
type Input struct {
	Node *Node
	Now  time.Time
	// Generation and Revision are of the read data, for callers that cache the usage.
	Generation int64
	Revision   uint64
	// Pods are on the node. Listed, which may be nil, are those that the scheduling cycle has on it. A pod
	// that is only in Listed was taken out by a dry run: its reservations and records are ignored.
	Pods, Listed Pods
	Reservations []Reservation
	Reader       Reader
	// Retried is the pod whose own reservations are ignored; empty for none.
	Retried types.UID
	// Allocatable, if not nil, are the resources that the node's kubelet offers: devices beyond the number
	// that its pods leave are not free. The scheduler needs none: the stock plugin compares numbers.
	Allocatable *Amounts
	// Released, if not nil, reports pods that are gone and whose records are ignored.
	Released func(types.UID) bool
}

// Compute returns the usage of a node.
func Compute(in *Input) *Usage {
	n := in.Node
	if in.Pods.Len() == 0 && len(in.Reservations) == 0 && len(n.Records) == 0 && in.Allocatable == nil {
		idle := *n.Idle // what it refers to never changes
		idle.Generation, idle.Revision = in.Generation, in.Revision
		return &idle
	}
	u := nothingCharged(n)
	u.Generation, u.Revision = in.Generation, in.Revision
	c := charging{u: &u}
	for i := range in.Pods.Len() {
		c.addPod(in, in.Pods, i)
	}
	c.addUnlisted(in)
	c.settle()
	if in.Allocatable != nil {
		u.withhold(in)
	}
	return &u
}

// Alone returns the usage of the input's node by one of some pods, as if it were the only one.
func Alone(in *Input, pods Pods, i int) Usage {
	u := nothingCharged(in.Node)
	c := charging{u: &u}
	c.addPod(in, pods, i)
	return u
}

// nothingCharged returns the usage of the node before the first pod is charged.
func nothingCharged(n *Node) Usage {
	return Usage{
		Node: n, Used: make([]nvtopo.Mask, len(n.Accels)), Counted: make([]int, len(n.Accels)), Foreign: make([]bool, len(n.Accels)),
		NUMA: slices.Clone(n.Idle.NUMA),
	}
}

// has reports whether a pod is in a list, which may be nil.
func has(pods Pods, uid types.UID) bool {
	if pods == nil {
		return false
	}
	for i := range pods.Len() {
		if pods.Pod(i).UID == uid {
			return true
		}
	}
	return false
}

// addUnlisted charges the reservations and records of pods that are not on the node, and were not taken
// out by a dry run.
func (c *charging) addUnlisted(in *Input) {
	u, n := c.u, c.u.Node
	if len(in.Reservations) == 0 && len(n.Records) == 0 {
		return
	}
	gone := func(uid types.UID) bool { return !has(in.Pods, uid) && !has(in.Listed, uid) }
	for i := range in.Reservations {
		if r := &in.Reservations[i]; r.UID != in.Retried && gone(r.UID) {
			c.addReservation(r)
		}
	}
	u.AgentLived = n.Enforced(in.Now)
	for uid, recs := range n.Records {
		if !gone(uid) {
			c.victim(in.Pods, uid, recs)
			continue
		}
		u.Unreleased = true
		if in.Released != nil && in.Released(uid) {
			continue
		}
		if u.AgentLived { // a dead agent would keep them used for ever
			u.addRecorded(recs)
		}
	}
}
