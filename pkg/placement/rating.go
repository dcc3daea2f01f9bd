// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Rate returns the quality of the best set for the pod's first GPU resource; ok is false if the node has
// none. It does not allocate.
func Rate(u *usage.Usage, r *podrequest.Request) (o nodeindex.Offer, ok bool) {
	if !r.HasGPUs() {
		return nodeindex.Offer{}, false
	}
	ai := u.AccelIndex(r.Resources[0].Name)
	if ai < 0 {
		return nodeindex.Offer{}, false
	}
	sets, _, reason := pickAll(u, r)
	if reason != Fits {
		return nodeindex.Offer{}, false
	}
	accel := u.Node.Accels[ai]
	return nodeindex.OfferOf(accel.Tables, accel.Healthy, u.FreeAt(ai), accel.Degraded, sets[0]), true
}

// Alignment tells how a pod's set lies on the node's NUMA nodes.
type Alignment struct {
	Nodes int  // number of NUMA nodes of the set
	Local bool // they also have the requested CPU and memory
}

// Align returns the NUMA alignment of the best set for a pod, with or without GPUs; ok is false if the
// node has no set or its NUMA nodes are not known. It does not allocate.
func Align(u *usage.Usage, r *podrequest.Request) (a Alignment, ok bool) {
	var m uint64
	var sets Sets
	if r.HasGPUs() {
		var reason Reason
		if sets, _, reason = pickAll(u, r); reason != Fits {
			return Alignment{}, false
		}
	} else {
		nodes, reason := pickNUMA(u, r)
		if reason != Fits || nodes == 0 {
			return Alignment{}, false
		}
		m = nodes
	}
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		nodes, known := nodeMask(u, u.Node.Accels[ai].Graph, sets[ri])
		if !known {
			return Alignment{}, false
		}
		m |= nodes
	}
	return Alignment{Nodes: nvtopo.Mask(m).Len(), Local: fit(u, m, r.MilliCPU, r.Memory) == Fits}, true
}
