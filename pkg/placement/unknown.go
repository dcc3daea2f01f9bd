// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// An unknown property of a node meets no demand. The node is refused as unknown, and not as short of
// something: waiting and requesting less do not help.

// whyNone returns why the tables have no set for a pick. within are the GPUs that it may use, suitable or
// not.
func whyNone(accel *usage.Accel, r *podrequest.Request, q *question, within nvtopo.Mask) Reason {
	if (q.free & q.allowed).Len() < q.k { // more of the free GPUs might be suitable
		memory, model := r.Undecided(accel.Graph)
		free := q.free & within
		switch {
		case (free & (q.allowed | memory | model)).Len() < q.k:
			return FewSuitableGPUs
		case free&memory != 0:
			return UnknownGPUMemory
		default:
			return UnknownGPUModel
		}
	}
	reason := fromShortfall(accel.Tables.Shortfall(q.free, q.allowed, q.k, q.c))
	if reason == FewInNUMA && accel.Graph.MightShareNUMA(q.free&q.allowed, q.k, q.c.Policy) {
		return UnknownNUMA
	}
	return reason
}

// anyUnplaced reports whether the NUMA node of some GPU that the pod might have is not known.
func anyUnplaced(u *usage.Usage, r *podrequest.Request) bool {
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		if ai < 0 {
			continue
		}
		if g := u.Node.Accels[ai].Graph; u.FreeAt(ai)&r.Suitable(g)&g.NUMAUnknown() != 0 {
			return true
		}
	}
	return false
}

// whyNoFit returns why no k of some GPUs have this CPU and memory beside them.
func whyNoFit(u *usage.Usage, g *nvtopo.Graph, among nvtopo.Mask, k int, milliCPU, memory int64) Reason {
	if among&unplaced(u, g) != 0 && mightFit(u, k, milliCPU, memory) {
		return UnknownNUMA
	}
	return whyNoRoom(u, milliCPU, memory)
}

// unplaced returns the GPUs whose NUMA node is not known, or not one of the node's.
func unplaced(u *usage.Usage, g *nvtopo.Graph) (m nvtopo.Mask) {
	for i := range g.GPUs {
		if u.Position(g.GPUs[i].NUMANode) < 0 {
			m |= 1 << i
		}
	}
	return m
}

// mightFit reports whether the NUMA nodes of k GPUs could have this CPU and memory, wherever the GPUs
// are: one node for one GPU, and at most all together.
func mightFit(u *usage.Usage, k int, milliCPU, memory int64) bool {
	if k > 1 {
		return fit(u, 1<<len(u.NUMA)-1, milliCPU, memory) == Fits
	}
	for i := range u.NUMA {
		if fit(u, 1<<i, milliCPU, memory) == Fits {
			return true
		}
	}
	return false
}

// whyNoRoom returns which of CPU and memory the NUMA nodes lack, or that their amounts are not known. It
// is CPU, the usual one, when only the alignment fails.
func whyNoRoom(u *usage.Usage, milliCPU, memory int64) Reason {
	var most int64 // of one node
	for i := range u.NUMA {
		most = max(most, u.NUMA[i].Memory)
	}
	reason := NoNUMACPU
	if most < memory || fit(u, 1<<len(u.NUMA)-1, milliCPU, memory) == NoNUMAMemory {
		reason = NoNUMAMemory
	}
	for i := range u.Node.Empty.NUMA {
		empty := &u.Node.Empty.NUMA[i]
		if reason == NoNUMACPU && empty.MilliCPU > 0 || reason == NoNUMAMemory && empty.Memory > 0 {
			return reason
		}
	}
	return UnknownNUMA // a machine has both somewhere
}
