// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// Scheduler is the process around the gangs: the cluster as it knows it, and the queue, the waiting pods and
// the API server that gangs act on.
type Scheduler interface {
	Cluster
	Doer
}

// Cluster is the part of Scheduler that answers and keeps places; nodestate's State does. It must not block, nor
// call Gangs: all but MayLead are called under its lock.
type Cluster interface {
	MayLead() bool            // this process leads, as far as the Lease says; called without the lock
	Synced() bool             // it is known what all nodes have
	Fabric() *fabricview.View // nil while it is not read yet
	// Keep keeps these places of nodes, by name, and no others from then on.
	Keep(places map[string][]*candidates.Kept)
}

// Doer is the part of Scheduler that carries out what a step of a gang asks for. It is called without any lock of
// Gangs, and not in PreEnqueue.
type Doer interface {
	Release(uids []types.UID)            // ends the reservations and nominations of pods, also of deleted ones
	Reject(uids []types.UID, why string) // rejects the pods that wait at Permit
	Allow(uids []types.UID)              // allows the pods that wait at Permit
	Activate(pods []*v1.Pod)             // moves the pods to the active queue
	Commit(c *Commit)                    // it writes that the gang is not whole, and calls Written later
	Whole(c *Commit)                     // it writes that the gang is whole
	Settle(s *Settlement)                // it does what Judge says, and calls Settled later
	// Say tells the members, which wait, why the gang does not go on.
	Say(key gangrequest.Key, pods []*v1.Pod, why string)
}
