// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Choose makes the whole allocation of a pod on the node: GPUs per container,
// NUMA nodes and, if wanted, CPUs. It is what Check promised, computed again.
func (u *Usage) Choose(r *Request, wantCPUs bool) (*Allocation, Reason) {
	a := &Allocation{Version: AllocationVersion, Node: u.node.Name, PodUID: r.UID}
	var numa []int
	sets, reason := u.pickAll(r)
	if reason != Fits {
		return nil, reason
	}
	for ri := range r.Resources {
		ai, set := u.accelIndex(r.Resources[ri].Name), sets[ri]
		accel := u.node.Accels[ai]
		a.Unconfirmed = a.Unconfirmed || u.foreign[ai]
		parts, ok := splitContainers(accel, set, r.containers, ri)
		if !ok {
			return nil, GPUCountMismatch
		}
		a.Containers = append(a.Containers, parts...)
		numa = append(numa, accel.Graph.NUMAOf(set)...)
	}
	if !r.HasGPUs() {
		m, reason := u.pickNUMA(r)
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
		a.cpus = u.chooseCPUs(r, a.NUMANodes)
		a.CPUSet = a.cpus.String()
	}
	return a, Fits
}

// linkClass is the class of the weakest link of the first resource's ring.
func (u *Usage) linkClass(a *Allocation) string {
	for _, accel := range u.node.Accels {
		if m := a.mask(accel); m != 0 {
			return accel.Tables.RingClass(m).String()
		}
	}
	return ""
}

// chooseCPUs takes as many CPUs as the pod asks for (rounded up), in equal parts
// nearest to each NUMA node of the choice, so that every GPU has some beside it;
// none where that many are not left, since a cpuset smaller than the request
// would only slow the pod down.
func (u *Usage) chooseCPUs(r *Request, nodes []int) nvtopo.CPUSet {
	n := int((r.MilliCPU + 999) / 1000)
	if n == 0 || len(nodes) == 0 {
		return nil
	}
	free := u.freeCPUs()
	if r.needsNUMAFit() {
		var near []int
		for i := range u.node.NUMA.NUMANodes {
			if nn := &u.node.NUMA.NUMANodes[i]; slices.Contains(nodes, nn.ID) {
				near = append(near, nn.CPUs...)
			}
		}
		free = free.Minus(free.Minus(nvtopo.NewCPUSet(near...)))
	}
	var all nvtopo.CPUSet
	for i, id := range nodes {
		share := (n - len(all)) / (len(nodes) - i)
		if share == 0 {
			continue
		}
		part := u.node.NUMA.NearestCPUs([]int{id}, free, share)
		if part == nil {
			return nil
		}
		all, free = all.Union(part), free.Minus(part)
	}
	return all
}

// splitContainers divides the pod's set among its containers: those that run at
// the same time get disjoint parts that maximise the worst one's ring; an init
// container reuses what later containers get, but not a running sidecar's.
func splitContainers(accel *Accel, set nvtopo.Mask, cs []containerRequest, ri int) ([]ContainerAllocation, bool) {
	var sizes []int
	for _, c := range cs {
		if c.kind != InitContainer && c.gpus[ri] > 0 {
			sizes = append(sizes, c.gpus[ri])
		}
	}
	t := accel.Tables
	parts, ok := t.Split(set, sizes)
	if !ok {
		return nil, false
	}
	g := t.Graph()
	var out []ContainerAllocation
	var sidecars nvtopo.Mask // of the sidecars started so far
	next := 0
	for _, c := range cs {
		k := c.gpus[ri]
		if k == 0 {
			continue
		}
		var part nvtopo.Mask
		if c.kind == InitContainer {
			// The whole pod's GPUs but the sidecars': the objective picks among them.
			part, ok = t.Pick(set&^sidecars, set, k, nvtopo.Constraint{AllowMixedModels: true})
			if !ok {
				return nil, false
			}
		} else {
			part = parts[next]
			next++
			if c.kind == SidecarContainer {
				sidecars |= part
			}
		}
		ca := ContainerAllocation{Name: c.name, Resource: accel.Resource, Init: c.kind == InitContainer, NUMANodes: known(g.NUMAOf(part))}
		for _, p := range t.RingOrder(part) {
			ca.GPUs = append(ca.GPUs, g.GPUs[p].UUID)
		}
		out = append(out, ca)
	}
	return out, true
}

func known(nodes []int) []int {
	return slices.DeleteFunc(nodes, func(id int) bool { return id == nvtopo.UnknownNUMA })
}
