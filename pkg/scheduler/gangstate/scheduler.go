// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// Scheduler is the process around the gangs: its view of the cluster, and the queue, the waiting pods and
// the API server that gangs act on.
type Scheduler interface {
	Cluster
	Doer
}

// Cluster is the part of Scheduler that is read and that keeps places; nodestate's State implements it.
// It must not block, nor call Gangs: all methods but MayLead are called under its lock.
type Cluster interface {
	MayLead() bool            // this process leads, according to the Lease; called without the lock
	Synced() bool             // the topologies of all nodes have been read
	Fabric() *fabricview.View // nil until it is read
	// Keep makes these places, by node, the only kept ones.
	Keep(places map[string][]*candidates.Kept)
}

// Doer is the part of Scheduler that carries out the effects of a gang's step. It is called without any
// lock of Gangs, and not in PreEnqueue.
type Doer interface {
	Release(uids []types.UID)            // ends the reservations and nominations of pods, also of deleted ones
	Reject(uids []types.UID, why string) // rejects the pods that wait at Permit
	Allow(uids []types.UID)              // allows the pods that wait at Permit
	Activate(pods []*v1.Pod)             // moves the pods to the active queue
	Commit(c *Commit)                    // writes that the gang is not whole, and calls Written later
	Whole(c *Commit)                     // writes that the gang is whole
	Settle(s *Settlement)                // carries out the Verdict of Judge, and calls Settled later
	// Say reports on the waiting members why the gang does not go on.
	Say(key gangrequest.Key, pods []*v1.Pod, why string)
}
