// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// Rate judges the best choice for the pod's first GPU resource; ok is false if
// the node has none. It does not allocate.
func (u *Usage) Rate(r *podrequest.Request) (o cluster.Offer, ok bool) {
	if !r.HasGPUs() {
		return cluster.Offer{}, false
	}
	ai := u.accelIndex(r.Resources[0].Name)
	if ai < 0 {
		return cluster.Offer{}, false
	}
	sets, _, reason := u.pickAll(r)
	if reason != Fits {
		return cluster.Offer{}, false
	}
	accel := u.node.Accels[ai]
	return cluster.OfferOf(accel.Tables, accel.Healthy, u.free(ai), accel.Degraded, sets[0]), true
}

// Alignment is how a pod's choice lies on the node's NUMA nodes.
type Alignment struct {
	Nodes int  // NUMA nodes of the choice
	Local bool // they also have the CPU and memory asked
}

// Align judges the choice for a pod, with or without GPUs; ok is false if the
// node has none or its NUMA nodes are not known. It does not allocate.
func (u *Usage) Align(r *podrequest.Request) (a Alignment, ok bool) {
	var m uint64
	var sets picks
	if r.HasGPUs() {
		var reason Reason
		if sets, _, reason = u.pickAll(r); reason != Fits {
			return Alignment{}, false
		}
	} else {
		nodes, reason := u.pickNUMA(r)
		if reason != Fits || nodes == 0 {
			return Alignment{}, false
		}
		m = nodes
	}
	for ri := range r.Resources {
		ai := u.accelIndex(r.Resources[ri].Name)
		nodes, known := u.nodeMask(u.node.Accels[ai].Graph, sets[ri])
		if !known {
			return Alignment{}, false
		}
		m |= nodes
	}
	return Alignment{Nodes: nvtopo.Mask(m).Len(), Local: u.fit(r, m) == Fits}, true
}
