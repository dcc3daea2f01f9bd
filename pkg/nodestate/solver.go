// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// The joint solver: from what is free on a node to the GPUs, NUMA nodes and
// CPUs of a pod, or the reason there are none. Filter asks it whether, Reserve
// asks it which; both get the same answer from the same usage.

// pick chooses the GPUs of the i-th resource of a request on accelerator kind
// ai, or says why there are none. It does not allocate when it succeeds.
// Only GPUs of within are taken, and only such as kubelet gives by the forecast.
func (u *Usage) pick(r *podrequest.Request, ri, ai int, within nvtopo.Mask, f *forecast) (nvtopo.Mask, Reason) {
	accel := u.node.Accels[ai]
	k := r.Resources[ri].Count
	free, alone, reason := u.usable(r, ai, k)
	if reason != Fits {
		return 0, reason
	}
	if u.foreign[ai] && (r.LinkSensitive() || f.strict()) {
		return 0, UnknownDevices
	}
	allowed := r.Suitable(accel.Graph) & within
	if alone &= allowed; alone != 0 {
		if set, reason := u.pickAlone(r, ai, alone, f); reason == Fits || free&allowed == 0 {
			return set, reason
		}
	}
	c := u.constraint(r)
	set, ok := accel.Tables.Pick(free, allowed, k, c)
	if !ok {
		if (free & allowed).Len() < k {
			return 0, FewSuitableGPUs
		}
		return 0, fromShortfall(accel.Tables.Shortfall(free, allowed, k, c))
	}
	if (!r.NeedsNUMAFit() || u.fitOf(r, accel.Graph, set) == Fits) && f.honours(ai, accel.Graph, set) {
		return set, Fits
	}
	return u.pickWhere(r, ai, f, &question{free: free, allowed: allowed, k: k, c: c})
}

// usable splits what is free into the GPUs that may be used together and those that
// the pod may have only because it asks for one; or says that there are too few.
func (u *Usage) usable(r *podrequest.Request, ai, k int) (free, alone nvtopo.Mask, reason Reason) {
	all, degraded := u.free(ai), u.node.Accels[ai].Degraded
	free = all &^ degraded
	if r.Single() {
		alone = all & degraded
	}
	switch {
	case (free|alone).Len()-u.counted[ai] >= k:
		return free, alone, Fits
	case all.Len()-u.counted[ai] >= k:
		return 0, 0, DegradedGPUs
	}
	return 0, 0, FewGPUs
}

// pickAlone is the lowest of some degraded GPUs that has what the pod needs beside
// it and that kubelet would give. It comes before any intact GPU: it is in no set, so
// nothing is lost with it (see Tables.PickUsable).
func (u *Usage) pickAlone(r *podrequest.Request, ai int, among nvtopo.Mask, f *forecast) (nvtopo.Mask, Reason) {
	g := u.node.Accels[ai].Graph
	reason := KubeletElsewhere
	for m := among; m != 0; m &= m - 1 {
		set := m & -m
		switch {
		case r.NeedsNUMAFit() && u.fitOf(r, g, set) != Fits:
			reason = u.fitReason(r)
		case f.honours(ai, g, set):
			return set, Fits
		}
	}
	if !f.admits() {
		reason = KubeletRefuses
	}
	return 0, reason
}

// question is one pick from the GPUs of a node.
type question struct {
	free, allowed nvtopo.Mask
	k             int
	c             nvtopo.Constraint
}

// pickWhere is pick where the best set lacks CPU or memory beside it, or kubelet
// would not give it: the best of those that do.
func (u *Usage) pickWhere(r *podrequest.Request, ai int, f *forecast, q *question) (nvtopo.Mask, Reason) {
	accel := u.node.Accels[ai]
	fits := func(s nvtopo.Mask) bool { return !r.NeedsNUMAFit() || u.fitOf(r, accel.Graph, s) == Fits }
	if region, ok := f.region(ai); ok && len(r.Resources) == 1 {
		set, ok := accel.Tables.Pick(q.free, q.allowed&region, q.k, q.c)
		if ok && fits(set) && f.honours(ai, accel.Graph, set) {
			return set, Fits
		}
	}
	if r.NeedsNUMAFit() {
		set, ok := accel.Tables.PickWhere(q.free, q.allowed, q.k, q.c, fits)
		if !ok {
			return 0, u.fitReason(r)
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

// picks are the sets of a request's resources, in their order.
type picks [podrequest.MaxResources]nvtopo.Mask

// pickAll chooses the GPUs of every resource. Each is chosen by itself, but for
// single-numa-node, where all have to share one node: the lowest that has them.
// The forecast, nil where kubelet aligns nothing, has all sets settled.
func (u *Usage) pickAll(r *podrequest.Request) (sets picks, f *forecast, reason Reason) {
	if len(r.Resources) < 2 || u.constraint(r).Policy != nvtopo.PolicySingleNUMANode {
		f = u.forecast(r)
		if sets, reason = u.pickOn(r, -1, f); reason == Fits && r.HasGPUs() && !u.inAnyOrder(f) {
			return picks{}, nil, KubeletBusy
		}
		return sets, f, reason
	}
	reason = FewInNUMA
	for i := range u.numa {
		f = u.forecast(r)
		if sets, reason = u.pickOn(r, i, f); reason == Fits {
			if !u.inAnyOrder(f) {
				reason = KubeletBusy
				continue
			}
			return sets, f, Fits
		}
	}
	return picks{}, nil, reason
}

// pickOn chooses on the i-th NUMA node only, or anywhere with -1.
func (u *Usage) pickOn(r *podrequest.Request, i int, f *forecast) (sets picks, reason Reason) {
	for ri := range r.Resources {
		ai := u.accelIndex(r.Resources[ri].Name)
		if ai < 0 {
			return picks{}, NoGraph
		}
		within := everything
		if i >= 0 {
			within = onNode(u.node.Accels[ai].Graph, u.node.NUMA.NUMANodes[i].ID)
		}
		if sets[ri], reason = u.pick(r, ri, ai, within, f); reason != Fits {
			return picks{}, reason
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

// constraint is the pod's, and where kubelet's verdict cannot be predicted
// tightened to what it is sure to admit.
func (u *Usage) constraint(r *podrequest.Request) nvtopo.Constraint {
	if u.node.kubelet != nil {
		return r.Constraint
	}
	return cluster.Tighten(r.Constraint, u.node.KubeletPolicy)
}

// nodeMask returns the NUMA nodes of a set as positions in Node.NUMA, and
// whether all of them are known.
func (u *Usage) nodeMask(g *nvtopo.Graph, set nvtopo.Mask) (m uint64, known bool) {
	for r := set; r != 0; r &= r - 1 {
		p := u.position(g.GPUs[r.First()].NUMANode)
		if p < 0 {
			return 0, false
		}
		m |= 1 << p
	}
	return m, true
}

func (u *Usage) position(id int) int {
	for i := range u.numa {
		if u.node.NUMA.NUMANodes[i].ID == id {
			return i
		}
	}
	return -1
}

// fitOf reports whether the NUMA nodes of a set of GPUs have the CPU and memory asked.
func (u *Usage) fitOf(r *podrequest.Request, g *nvtopo.Graph, set nvtopo.Mask) Reason {
	m, known := u.nodeMask(g, set)
	if !known {
		return FewInNUMA
	}
	return u.fit(r, m)
}

func (u *Usage) fit(r *podrequest.Request, m uint64) Reason {
	var milliCPU, memory int64
	for i := range u.numa {
		if m>>i&1 != 0 {
			milliCPU += max(0, u.numa[i].milliCPU)
			memory += max(0, u.numa[i].memory)
		}
	}
	switch {
	case milliCPU < r.MilliCPU:
		return NoNUMACPU
	case memory < r.Memory:
		return NoNUMAMemory
	}
	return Fits
}

// fitReason says which of CPU and memory is short even on all NUMA nodes
// together, or CPU, the usual one, when only the alignment fails.
func (u *Usage) fitReason(r *podrequest.Request) Reason {
	if reason := u.fit(r, 1<<len(u.numa)-1); reason == NoNUMAMemory {
		return reason
	}
	var most int64
	for i := range u.numa {
		most = max(most, u.numa[i].memory)
	}
	if most < r.Memory {
		return NoNUMAMemory
	}
	return NoNUMACPU
}

// Check says whether a pod fits the node, and if not what is missing. It does
// not allocate when the pod fits.
func (u *Usage) Check(r *podrequest.Request) Reason {
	if !r.HasGPUs() {
		_, reason := u.pickNUMA(r)
		if reason == Fits {
			reason = u.verdict(u.forecast(r))
		}
		return reason
	}
	_, _, reason := u.pickAll(r)
	return reason
}

// verdict is kubelet's on a pod without GPUs.
func (u *Usage) verdict(f *forecast) Reason {
	switch {
	case !f.admits():
		return KubeletRefuses
	case !u.inAnyOrder(f):
		return KubeletBusy
	}
	return Fits
}

func (u *Usage) accelIndex(resource string) int {
	for i, a := range u.node.Accels {
		if a.Resource == resource {
			return i
		}
	}
	return -1
}

// pickNUMA chooses NUMA nodes for a pod without GPUs: as few as hold its CPU
// and memory, then those with the fewest free GPUs, so that CPUs beside free
// GPUs stay free, then the tightest fit, then the lowest.
func (u *Usage) pickNUMA(r *podrequest.Request) (uint64, Reason) {
	most := len(u.numa)
	hard := r.Affinity == podrequest.AffinityRequired
	switch r.Constraint.Policy {
	case nvtopo.PolicySingleNUMANode:
		most, hard = 1, true
	case nvtopo.PolicyRestricted:
		// As few as would do on the empty machine.
		most, hard = u.fewestWhenEmpty(r), true
	case nvtopo.PolicyNone, nvtopo.PolicyBestEffort:
		if hard {
			most = 1
		}
	}
	for size := 1; size <= most; size++ {
		if m, ok := u.bestNodes(r, size); ok {
			return m, Fits
		}
	}
	if !hard {
		return 0, Fits
	}
	if len(u.numa) == 0 {
		return 0, NoGraph
	}
	return 0, u.fitReason(r)
}

func (u *Usage) fewestWhenEmpty(r *podrequest.Request) int {
	for size := 1; size <= len(u.numa); size++ {
		if _, ok := u.node.empty.bestNodes(r, size); ok {
			return size
		}
	}
	return len(u.numa)
}

// maxCPUNodes bounds the NUMA nodes with CPUs whose subsets are tried; the
// largest known machines have 8 (16 with sub-NUMA clustering).
const maxCPUNodes = 16

// bestNodes tries every set of size NUMA nodes that have CPUs.
func (u *Usage) bestNodes(r *podrequest.Request, size int) (best uint64, ok bool) {
	var with [maxCPUNodes]int
	n := 0
	for i := range u.numa {
		if len(u.node.NUMA.NUMANodes[i].CPUs) > 0 && n < maxCPUNodes {
			with[n] = i
			n++
		}
	}
	if size > n {
		return 0, false
	}
	var bestKey [3]int64
	// Gosper's hack walks the sets of one size in ascending order.
	for c := uint64(1)<<size - 1; c < 1<<n; {
		var m uint64
		for i := range n {
			if c>>i&1 != 0 {
				m |= 1 << with[i]
			}
		}
		if u.fit(r, m) == Fits {
			key := u.nodesKey(m)
			if !ok || less(key, bestKey) {
				best, bestKey, ok = m, key, true
			}
		}
		low := c & -c
		up := c + low
		c = (up^c)>>2/low | up
	}
	return best, ok
}

// nodesKey is smaller for the better set: nearer nodes, fewer free GPUs, tighter fit.
func (u *Usage) nodesKey(m uint64) [3]int64 {
	var key [3]int64
	for i := range u.numa {
		if m>>i&1 == 0 {
			continue
		}
		nn := &u.node.NUMA.NUMANodes[i]
		for j := range i {
			if m>>j&1 != 0 {
				key[0] = max(key[0], int64(u.node.NUMA.NUMADistance(nn.ID, u.node.NUMA.NUMANodes[j].ID)))
			}
		}
		for ai, a := range u.node.Accels {
			for f := u.free(ai); f != 0; f &= f - 1 {
				if a.Graph.GPUs[f.First()].NUMANode == nn.ID {
					key[1]++
				}
			}
		}
		key[2] += u.numa[i].milliCPU
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
