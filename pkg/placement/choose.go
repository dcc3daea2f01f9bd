// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Choose computes the whole allocation of a pod on the node: GPUs per container, NUMA nodes and, if
// wantCPUs, CPUs. It succeeds exactly where Check does for the same usage.
func Choose(u *usage.Usage, r *podrequest.Request, wantCPUs bool) (*allocation.Allocation, Reason) {
	a := &allocation.Allocation{Version: allocation.Version, Node: u.Node.Name, PodUID: r.UID}
	var numa []int
	sets, f, reason := pickAll(u, r)
	if reason != Fits {
		return nil, reason
	}
	parts, ok := divideAll(u, r, &sets, f)
	if !ok {
		return nil, GPUCountMismatch
	}
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		accel := u.Node.Accels[ai]
		a.Unconfirmed = a.Unconfirmed || u.Foreign[ai]
		a.Containers = append(a.Containers, describe(accel, parts[ri], r.Containers)...)
		numa = append(numa, accel.Graph.NUMAOf(sets[ri])...)
	}
	for _, accel := range u.Node.Accels {
		if set := a.Mask(accel.Resource, accel.Graph); set.Len() > 1 {
			a.Ring = ringOf(accel, set)
		}
	}
	if !r.HasGPUs() {
		m, reason := pickNUMA(u, r)
		if reason == Fits {
			reason = verdict(u, newForecast(u, r))
		}
		if reason != Fits {
			return nil, reason
		}
		for i := range u.NUMA {
			if m>>i&1 != 0 {
				numa = append(numa, u.Node.NUMA.NUMANodes[i].ID)
			}
		}
	}
	slices.Sort(numa)
	a.NUMANodes = slices.DeleteFunc(slices.Compact(numa), func(id int) bool { return id == nvtopo.UnknownNUMA })
	if wantCPUs && !u.Node.StaticCPUs {
		a.SetCPUs(chooseCPUs(u, a.NUMANodes, r.MilliCPU, r.NeedsNUMAFit()))
	}
	return a, Fits
}

// ChooseOnly is Choose for a member of a gang on a node with an agent, where the GPUs of the first
// resource have to be exactly only.
func ChooseOnly(u *usage.Usage, d *Demand, only nvtopo.Mask, now time.Time) (*allocation.Allocation, Reason) {
	r := d.Request
	if reason := checkEnforcement(r, d.Unenforced, u.Node, now); reason != Fits {
		return nil, reason
	}
	ai := u.AccelIndex(r.Resources[0].Name)
	if ai < 0 {
		return nil, NoGraph
	}
	k := r.Resources[0].Count
	if _, _, reason := usableGPUs(u, ai, k, r.Single()); reason != Fits {
		return nil, reason
	}
	if only&^u.FreeAt(ai) != 0 || only.Len() != k {
		return nil, FewGPUs
	}
	restricted := *u
	restricted.Used, restricted.Counted = slices.Clone(u.Used), slices.Clone(u.Counted)
	restricted.Used[ai], restricted.Counted[ai] = ^only, 0
	return Choose(&restricted, r, d.WantCPUs)
}

// FastestRing is the bandwidth, in kB/s, of the ring that the pod would get without a minimum bandwidth; 0
// if it would have no ring.
func FastestRing(u *usage.Usage, r *podrequest.Request) int64 {
	less := *r
	less.Constraint.MinBandwidth = 0
	a, reason := Choose(u, &less, false)
	if reason != Fits || a.Ring == nil {
		return 0
	}
	return a.Ring.Bandwidth
}

func ringOf(accel *usage.Accel, set nvtopo.Mask) *allocation.Ring {
	return &allocation.Ring{Class: accel.Tables.RingClass(set), Bandwidth: accel.Tables.Ring(set)}
}

// LinkClass is the class of the weakest link of the first resource's ring.
func LinkClass(u *usage.Usage, a *allocation.Allocation) string {
	for _, accel := range u.Node.Accels {
		if m := a.Mask(accel.Resource, accel.Graph); m != 0 {
			return accel.Tables.RingClass(m).String()
		}
	}
	return ""
}

// RingShare is the bandwidth of the first resource's ring as a share, from 0 to 1, of the best ring of as
// many devices on the empty machine; ok is false if there is no ring, or its bandwidth is not known.
func RingShare(u *usage.Usage, a *allocation.Allocation) (share float64, ok bool) {
	for _, accel := range u.Node.Accels {
		m := a.Mask(accel.Resource, accel.Graph)
		if m == 0 {
			continue
		}
		ring, best := accel.Tables.Ring(m), accel.Tables.Best(m.Len())
		if m.Len() < 2 || best <= 0 {
			return 0, false
		}
		return min(1, float64(ring)/float64(best)), true
	}
	return 0, false
}

// chooseCPUs takes as many CPUs as the pod requests (rounded up), spread over the NUMA nodes of the
// allocation, and only from these if only is set; none where too few are left, since a cpuset smaller than
// the request would only slow the pod down.
func chooseCPUs(u *usage.Usage, nodes []int, milliCPU int64, only bool) nvtopo.CPUSet {
	n := int((milliCPU + 999) / 1000)
	if n == 0 || len(nodes) == 0 {
		return nil
	}
	free := u.FreeCPUs()
	if only {
		var near []int
		for i := range u.Node.NUMA.NUMANodes {
			if nn := &u.Node.NUMA.NUMANodes[i]; slices.Contains(nodes, nn.ID) {
				near = append(near, nn.CPUs...)
			}
		}
		free = free.Minus(free.Minus(nvtopo.NewCPUSet(near...)))
	}
	return u.Node.NUMA.SpreadCPUs(nodes, free, n)
}

// describe returns the containers' parts of one resource as entries of the allocation.
func describe(accel *usage.Accel, parts []nvtopo.Mask, cs []podrequest.Container) []allocation.Container {
	var out []allocation.Container
	for i, c := range cs {
		if parts[i] == 0 {
			continue
		}
		g := accel.Graph
		ca := allocation.Container{Name: c.Name, Resource: accel.Resource, Init: c.Kind == podrequest.InitContainer, NUMANodes: known(g.NUMAOf(parts[i]))}
		for _, p := range accel.Tables.RingOrder(parts[i]) {
			ca.GPUs = append(ca.GPUs, g.GPUs[p].UUID)
		}
		out = append(out, ca)
	}
	return out
}

func known(nodes []int) []int {
	return slices.DeleteFunc(nodes, func(id int) bool { return id == nvtopo.UnknownNUMA })
}
