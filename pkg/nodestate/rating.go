// SPDX-License-Identifier: Apache-2.0

package nodestate

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// Rating is how good the best choice on a node is, for scoring.
type Rating struct {
	GPUs      int     // chosen
	Ring      int64   // bottleneck of the chosen set, kB/s; 0 for one GPU
	Latency   int64   // ns of its weakest link; 0 for one GPU
	Lost      float64 // residual capacity the choice costs, as a share of the whole machine's
	FreeAfter int     // GPUs left
}

// Rate judges the choice for the pod's first GPU resource; ok is false if the
// node has none. It does not allocate.
func (u *Usage) Rate(r *Request) (rating Rating, ok bool) {
	if !r.HasGPUs() {
		return Rating{}, false
	}
	ai := u.accelIndex(r.Resources[0].Name)
	if ai < 0 {
		return Rating{}, false
	}
	sets, reason := u.pickAll(r)
	if reason != Fits {
		return Rating{}, false
	}
	set := sets[0]
	accel, free := u.node.Accels[ai], u.free(ai)
	t := accel.Tables
	rating = Rating{GPUs: set.Len(), Ring: t.Ring(set), Latency: t.Latency(set), FreeAfter: (free &^ set).Len()}
	if all := t.Residual(accel.Healthy); all > 0 {
		rating.Lost = float64(t.Residual(free)-t.Residual(free&^set)) / float64(all)
	}
	return rating, true
}

// Alignment is how a pod's choice lies on the node's NUMA nodes.
type Alignment struct {
	Nodes int  // NUMA nodes of the choice
	Local bool // they also have the CPU and memory asked
}

// Align judges the choice for a pod, with or without GPUs; ok is false if the
// node has none or its NUMA nodes are not known. It does not allocate.
func (u *Usage) Align(r *Request) (a Alignment, ok bool) {
	var m uint64
	var sets picks
	if r.HasGPUs() {
		var reason Reason
		if sets, reason = u.pickAll(r); reason != Fits {
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
