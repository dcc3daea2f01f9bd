// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// Choose makes the whole allocation of a pod on the node: GPUs per container,
// NUMA nodes and, if wanted, CPUs. It is what Check promised, computed again.
func (u *Usage) Choose(r *podrequest.Request, wantCPUs bool) (*allocation.Allocation, Reason) {
	a := &allocation.Allocation{Version: allocation.Version, Node: u.node.Name, PodUID: r.UID}
	var numa []int
	sets, f, reason := u.pickAll(r)
	if reason != Fits {
		return nil, reason
	}
	parts, ok := u.divideAll(r, &sets, f)
	if !ok {
		return nil, GPUCountMismatch
	}
	for ri := range r.Resources {
		ai := u.accelIndex(r.Resources[ri].Name)
		accel := u.node.Accels[ai]
		a.Unconfirmed = a.Unconfirmed || u.foreign[ai]
		a.Containers = append(a.Containers, describe(accel, parts[ri], r.Containers)...)
		numa = append(numa, accel.Graph.NUMAOf(sets[ri])...)
	}
	for _, accel := range u.node.Accels {
		if set := a.Mask(accel.Resource, accel.Graph); set.Len() > 1 {
			a.Ring = ringOf(accel, set)
		}
	}
	if !r.HasGPUs() {
		m, reason := u.pickNUMA(r)
		if reason == Fits {
			reason = u.verdict(u.forecast(r))
		}
		if reason != Fits {
			return nil, reason
		}
		for i := range u.numa {
			if m>>i&1 != 0 {
				numa = append(numa, u.node.NUMA.NUMANodes[i].ID)
			}
		}
	}
	slices.Sort(numa)
	a.NUMANodes = slices.DeleteFunc(slices.Compact(numa), func(id int) bool { return id == nvtopo.UnknownNUMA })
	if wantCPUs && !u.node.StaticCPUs {
		a.SetCPUs(u.chooseCPUs(r, a.NUMANodes))
	}
	return a, Fits
}

func ringOf(accel *Accel, set nvtopo.Mask) *allocation.Ring {
	return &allocation.Ring{Class: accel.Tables.RingClass(set), Bandwidth: accel.Tables.Ring(set)}
}

// linkClass is the class of the weakest link of the first resource's ring.
func (u *Usage) linkClass(a *allocation.Allocation) string {
	for _, accel := range u.node.Accels {
		if m := a.Mask(accel.Resource, accel.Graph); m != 0 {
			return accel.Tables.RingClass(m).String()
		}
	}
	return ""
}

// chooseCPUs takes as many CPUs as the pod asks for (rounded up), spread over the
// NUMA nodes of the choice; none where that many are not left, since a cpuset
// smaller than the request would only slow the pod down.
func (u *Usage) chooseCPUs(r *podrequest.Request, nodes []int) nvtopo.CPUSet {
	n := int((r.MilliCPU + 999) / 1000)
	if n == 0 || len(nodes) == 0 {
		return nil
	}
	free := u.freeCPUs()
	if r.NeedsNUMAFit() {
		var near []int
		for i := range u.node.NUMA.NUMANodes {
			if nn := &u.node.NUMA.NUMANodes[i]; slices.Contains(nodes, nn.ID) {
				near = append(near, nn.CPUs...)
			}
		}
		free = free.Minus(free.Minus(nvtopo.NewCPUSet(near...)))
	}
	return u.node.NUMA.SpreadCPUs(nodes, free, n)
}

// describe writes down the containers' parts of one resource.
func describe(accel *Accel, parts []nvtopo.Mask, cs []podrequest.Container) []allocation.Container {
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
