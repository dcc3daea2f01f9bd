// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math/bits"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// The joint solver: from the free devices of a node to the GPUs, NUMA nodes and CPUs of a pod, or the
// reason that there are none. Filter calls Check, Reserve calls Choose; both get the same answer from the
// same usage.

// pick chooses the GPUs of the ri-th resource of a request on accelerator kind ai, or returns why there
// are none. It does not allocate when it succeeds. Only GPUs of within are taken, and only such as kubelet
// gives by the forecast.
func pick(u *usage.Usage, r *podrequest.Request, ri, ai int, within nvtopo.Mask, f *forecast) (nvtopo.Mask, Reason) {
	accel := u.Node.Accels[ai]
	k := r.Resources[ri].Count
	free, alone, reason := usableGPUs(u, ai, k, r.Single())
	if reason != Fits {
		return 0, reason
	}
	if u.Foreign[ai] && (r.LinkSensitive() || f.strict()) {
		return 0, UnknownDevices
	}
	allowed := r.Suitable(accel.Graph) & within
	if alone &= allowed; alone != 0 {
		if set, reason := pickAlone(u, r, ai, alone, f); reason == Fits || free&allowed == 0 {
			return set, reason
		}
	}
	c := constraintOf(u, r)
	set, ok := accel.Tables.Pick(free, allowed, k, c)
	if !ok {
		return 0, whyNone(accel, r, &question{free: free, allowed: allowed, k: k, c: c}, within)
	}
	if (!r.NeedsNUMAFit() || fitOf(u, accel.Graph, set, r.MilliCPU, r.Memory) == Fits) && f.honours(ai, accel.Graph, set) {
		return set, Fits
	}
	return pickWhere(u, r, ai, f, &question{free: free, allowed: allowed, k: k, c: c})
}

// usableGPUs splits the free GPUs into those that may be used together and the degraded ones that the pod
// may have only if it requests a single one; or returns that there are too few.
func usableGPUs(u *usage.Usage, ai, k int, single bool) (free, alone nvtopo.Mask, reason Reason) {
	all, degraded := u.FreeAt(ai), u.Node.Accels[ai].Degraded
	free = all &^ degraded
	if single {
		alone = all & degraded
	}
	switch {
	case (free|alone).Len()-u.Counted[ai] >= k:
		return free, alone, Fits
	case all.Len()-u.Counted[ai] >= k:
		return 0, 0, DegradedGPUs
	}
	return 0, 0, FewGPUs
}

// pickAlone returns the lowest of some degraded GPUs that has the pod's CPU and memory beside it and that
// kubelet would give. It is preferred to any intact GPU: it is in no set, so nothing is lost with it (see
// Tables.PickUsable).
func pickAlone(u *usage.Usage, r *podrequest.Request, ai int, among nvtopo.Mask, f *forecast) (nvtopo.Mask, Reason) {
	g := u.Node.Accels[ai].Graph
	reason := KubeletElsewhere
	for m := among; m != 0; m &= m - 1 {
		set := m & -m
		switch {
		case r.NeedsNUMAFit() && fitOf(u, g, set, r.MilliCPU, r.Memory) != Fits:
			reason = whyNoFit(u, g, among, 1, r.MilliCPU, r.Memory)
		case f.honours(ai, g, set):
			return set, Fits
		}
	}
	if !f.admits() {
		reason = KubeletRefuses
	}
	return 0, reason
}

// question holds the arguments of one pick from the GPUs of a node.
type question struct {
	free, allowed nvtopo.Mask
	k             int
	c             nvtopo.Constraint
}

// pickWhere is pick where the best set lacks CPU or memory beside it, or kubelet would not give it: it
// returns the best of the sets that have both.
func pickWhere(u *usage.Usage, r *podrequest.Request, ai int, f *forecast, q *question) (nvtopo.Mask, Reason) {
	accel := u.Node.Accels[ai]
	fits := func(s nvtopo.Mask) bool {
		return !r.NeedsNUMAFit() || fitOf(u, accel.Graph, s, r.MilliCPU, r.Memory) == Fits
	}
	if region, ok := f.region(ai); ok && len(r.Resources) == 1 {
		set, ok := accel.Tables.Pick(q.free, q.allowed&region, q.k, q.c)
		if ok && fits(set) && f.honours(ai, accel.Graph, set) {
			return set, Fits
		}
	}
	if r.NeedsNUMAFit() {
		set, ok := accel.Tables.PickWhere(q.free, q.allowed, q.k, q.c, fits)
		if !ok {
			return 0, whyNoFit(u, accel.Graph, q.free&q.allowed, q.k, r.MilliCPU, r.Memory)
		}
		if f.honours(ai, accel.Graph, set) {
			return set, Fits
		}
	}
	if !f.admits() {
		return 0, KubeletRefuses
	}
	f.memo = map[uint64]bool{}
	set, ok := accel.Tables.PickWhere(q.free, q.allowed, q.k, q.c, func(s nvtopo.Mask) bool {
		return fits(s) && f.honours(ai, accel.Graph, s)
	})
	if !ok {
		return 0, KubeletElsewhere
	}
	return set, Fits
}

// everything lets pick take any GPU.
const everything = ^nvtopo.Mask(0)

// Sets holds the GPUs of a request's resources, in their order.
type Sets [podrequest.MaxResources]nvtopo.Mask

// Pick chooses the GPUs of every resource of a request, or returns why there are none.
func Pick(u *usage.Usage, r *podrequest.Request) (sets Sets, reason Reason) {
	sets, _, reason = pickAll(u, r)
	return sets, reason
}

// pickAll chooses the GPUs of every resource. Each is chosen by itself, except under single-numa-node,
// where all have to share one node: the lowest that has them. The forecast, nil where kubelet aligns
// nothing, has all sets settled.
func pickAll(u *usage.Usage, r *podrequest.Request) (sets Sets, f *forecast, reason Reason) {
	if len(r.Resources) < 2 || constraintOf(u, r).Policy != nvtopo.PolicySingleNUMANode {
		f = newForecast(u, r)
		if sets, reason = pickOn(u, r, -1, f); reason == Fits && r.HasGPUs() && !inAnyOrder(u, f) {
			return Sets{}, nil, KubeletBusy
		}
		return sets, f, reason
	}
	reason = FewInNUMA
	for i := range u.NUMA {
		f = newForecast(u, r)
		if sets, reason = pickOn(u, r, i, f); reason == Fits {
			if !inAnyOrder(u, f) {
				reason = KubeletBusy
				continue
			}
			return sets, f, Fits
		}
	}
	if (reason == FewSuitableGPUs || reason == FewInNUMA) && anyUnplaced(u, r) {
		reason = UnknownNUMA // no NUMA node that was tried has them
	}
	return Sets{}, nil, reason
}

// pickOn chooses on the i-th NUMA node only, or anywhere with -1.
func pickOn(u *usage.Usage, r *podrequest.Request, i int, f *forecast) (sets Sets, reason Reason) {
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		if ai < 0 {
			return Sets{}, NoGraph
		}
		within := everything
		if i >= 0 {
			within = onNode(u.Node.Accels[ai].Graph, u.Node.NUMA.NUMANodes[i].ID)
		}
		if sets[ri], reason = pick(u, r, ri, ai, within, f); reason != Fits {
			return Sets{}, reason
		}
		f.settle(ai, sets[ri])
	}
	return sets, Fits
}

// onNode returns the GPUs of one NUMA node.
func onNode(g *nvtopo.Graph, id int) nvtopo.Mask {
	var m nvtopo.Mask
	for p := range g.GPUs {
		if g.GPUs[p].NUMANode == id {
			m |= 1 << p
		}
	}
	return m
}

// constraintOf returns the pod's constraint; where kubelet's verdict cannot be predicted, it is tightened
// to one that kubelet certainly admits.
func constraintOf(u *usage.Usage, r *podrequest.Request) nvtopo.Constraint {
	if u.Node.Kubelet != nil {
		return r.Constraint
	}
	return nodeindex.Tighten(r.Constraint, u.Node.KubeletPolicy)
}

// nodeMask returns the NUMA nodes of a set as positions in Node.NUMA, and
// whether all of them are known.
func nodeMask(u *usage.Usage, g *nvtopo.Graph, set nvtopo.Mask) (m uint64, known bool) {
	for r := set; r != 0; r &= r - 1 {
		p := u.Position(g.GPUs[r.First()].NUMANode)
		if p < 0 {
			return 0, false
		}
		m |= 1 << p
	}
	return m, true
}

// fitOf is fit for the NUMA nodes of a set of GPUs.
func fitOf(u *usage.Usage, g *nvtopo.Graph, set nvtopo.Mask, milliCPU, memory int64) Reason {
	m, known := nodeMask(u, g, set)
	if !known {
		return FewInNUMA
	}
	return fit(u, m, milliCPU, memory)
}

// fit returns Fits if some NUMA nodes have this CPU and memory, or which of the two they lack.
func fit(u *usage.Usage, m uint64, milliCPU, memory int64) Reason {
	var freeCPU, freeMemory int64
	for i := range u.NUMA {
		if m>>i&1 != 0 {
			freeCPU += max(0, u.NUMA[i].MilliCPU)
			freeMemory += max(0, u.NUMA[i].Memory)
		}
	}
	switch {
	case freeCPU < milliCPU:
		return NoNUMACPU
	case freeMemory < memory:
		return NoNUMAMemory
	}
	return Fits
}

// Check returns Fits if a pod fits the node, and otherwise the reason. It does not allocate when the pod
// fits.
func Check(u *usage.Usage, r *podrequest.Request) Reason {
	if !r.HasGPUs() {
		_, reason := pickNUMA(u, r)
		if reason == Fits {
			reason = verdict(u, newForecast(u, r))
		}
		return reason
	}
	_, _, reason := pickAll(u, r)
	return reason
}

// verdict returns why kubelet would not admit a pod without GPUs, or Fits.
func verdict(u *usage.Usage, f *forecast) Reason {
	switch {
	case !f.admits():
		return KubeletRefuses
	case !inAnyOrder(u, f):
		return KubeletBusy
	}
	return Fits
}

// pickNUMA chooses NUMA nodes for a pod without GPUs: as few as hold its CPU
// and memory, then those with the fewest free GPUs, so that CPUs beside free
// GPUs stay free, then the tightest fit, then the lowest.
func pickNUMA(u *usage.Usage, r *podrequest.Request) (uint64, Reason) {
	most := len(u.NUMA)
	hard := r.Affinity == podrequest.AffinityRequired
	switch r.Constraint.Policy {
	case nvtopo.PolicySingleNUMANode:
		most, hard = 1, true
	case nvtopo.PolicyRestricted:
		hard = true
		// The minimum number on the empty machine.
		if m, ok := bestNodes(u.Node.Empty, r.MilliCPU, r.Memory, most); ok {
			most = bits.OnesCount64(m)
		}
	case nvtopo.PolicyNone, nvtopo.PolicyBestEffort:
		if hard {
			most = 1
		}
	}
	m, ok := bestNodes(u, r.MilliCPU, r.Memory, most)
	if !ok && hard {
		return 0, whyNoRoom(u, r.MilliCPU, r.Memory)
	}
	return m, Fits
}

// maxCPUNodes bounds the NUMA nodes with CPUs whose subsets are tried; the
// largest known machines have 8 (16 with sub-NUMA clustering).
const maxCPUNodes = 16

// bestNodes returns the best set of at most `most` NUMA nodes that have CPUs: one of the smallest that
// hold this CPU and memory. If there is none, best is 0.
func bestNodes(u *usage.Usage, milliCPU, memory int64, most int) (best uint64, ok bool) {
	var with [maxCPUNodes]int
	n := 0
	for i := range u.NUMA {
		if len(u.Node.NUMA.NUMANodes[i].CPUs) > 0 && n < maxCPUNodes {
			with[n] = i
			n++
		}
	}
	var bestKey [3]int64
	for size := 1; size <= min(most, n) && !ok; size++ {
		// Gosper's hack walks the sets of one size in ascending order.
		for c := uint64(1)<<size - 1; c < 1<<n; {
			var m uint64
			for i := range n {
				if c>>i&1 != 0 {
					m |= 1 << with[i]
				}
			}
			if fit(u, m, milliCPU, memory) == Fits {
				key := nodesKey(u, m)
				if !ok || less(key, bestKey) {
					best, bestKey, ok = m, key, true
				}
			}
			low := c & -c
			up := c + low
			c = (up^c)>>2/low | up
		}
	}
	return best, ok
}

// nodesKey returns a sort key that is smaller for the better set: nearer nodes, fewer free GPUs, tighter
// fit.
func nodesKey(u *usage.Usage, m uint64) [3]int64 {
	var key [3]int64
	for i := range u.NUMA {
		if m>>i&1 == 0 {
			continue
		}
		nn := &u.Node.NUMA.NUMANodes[i]
		for j := range i {
			if m>>j&1 != 0 {
				key[0] = max(key[0], int64(u.Node.NUMA.NUMADistance(nn.ID, u.Node.NUMA.NUMANodes[j].ID)))
			}
		}
		for ai, a := range u.Node.Accels {
			for f := u.FreeAt(ai); f != 0; f &= f - 1 {
				if a.Graph.GPUs[f.First()].NUMANode == nn.ID {
					key[1]++
				}
			}
		}
		key[2] += u.NUMA[i].MilliCPU
	}
	return key
}

func less(a, b [3]int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
