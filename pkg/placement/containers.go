// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// divideAll divides the pod's sets among its containers, by resource and then by container of
// r.Containers. Where kubelet aligns, the division is one that it honours: the best one if kubelet honours
// that, else the one that kubelet itself would make, improved as far as it allows.
func divideAll(u *usage.Usage, r *podrequest.Request, sets *Sets, f *forecast) ([][]nvtopo.Mask, bool) {
	parts := make([][]nvtopo.Mask, len(r.Resources))
	for ri := range r.Resources {
		accel := u.Node.Accels[u.AccelIndex(r.Resources[ri].Name)]
		var ok bool
		if parts[ri], ok = divide(accel.Tables, sets[ri], r.Containers, ri); !ok {
			return nil, false
		}
	}
	if f == nil || len(r.Resources) == 0 || len(r.Containers) == 1 && len(r.Resources) == 1 {
		return parts, true
	}
	wish := f.wish
	wish.Parts = make([]kubeletadmission.Part, len(f.pod.Containers))
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		for i, c := range r.Containers {
			wish.Parts[c.Position][ai] = parts[ri][i]
		}
	}
	if f.machine.Admit(f.state, f.pod, &wish, nil) {
		return parts, true
	}
	return divideHonoured(u, r, sets, f)
}

// divide divides one resource's set. Containers that run at the same time get disjoint parts by
// nvtopo.Tables.Split: the best rings, then the fewest NUMA nodes.
//
// kubelet passes the devices of init containers on to the next container before it requests others: all of
// them if the next requests at least as many, else some at random. So an init container's part lies inside
// that of the next container, and a later init container's around those of the earlier ones: the devices
// that are passed on are then those planned. Only where a container requests fewer is it left to chance.
func divide(t *nvtopo.Tables, set nvtopo.Mask, cs []podrequest.Container, ri int) ([]nvtopo.Mask, bool) {
	var sizes []int
	for _, c := range cs {
		if c.Kind != podrequest.InitContainer {
			sizes = append(sizes, c.GPUs[ri])
		}
	}
	running, ok := t.Split(set, sizes)
	if !ok {
		return nil, false
	}
	spare := set
	for _, p := range running {
		spare &^= p
	}
	// The GPUs still to be given out, in kubelet's order.
	pools := append(append([]nvtopo.Mask{}, running...), spare)
	out := make([]nvtopo.Mask, len(cs))
	var left nvtopo.Mask // by init containers
	for i, c := range cs {
		k := c.GPUs[ri]
		switch {
		case c.Kind != podrequest.InitContainer:
			out[i], pools = pools[0], pools[1:]
			left &^= out[i]
		case k == 0:
		default:
			if out[i], ok = initPart(t, left, pools, k); !ok {
				return nil, false
			}
			left |= out[i]
		}
	}
	return out, true
}

// initPart is an init container's part: some of the GPUs that earlier ones left, or all of those and more
// from the pools in their order.
func initPart(t *nvtopo.Tables, left nvtopo.Mask, pools []nvtopo.Mask, k int) (nvtopo.Mask, bool) {
	any := nvtopo.Constraint{AllowMixedModels: true}
	if k <= left.Len() {
		return t.Pick(left, left, k, any)
	}
	part := left
	for _, pool := range pools {
		from := part | pool
		if from.Len() < k {
			part = from
			continue
		}
		return t.PickWhere(from, from, k, any, func(s nvtopo.Mask) bool { return part&^s == 0 })
	}
	return 0, false
}

// divideHonoured improves the division that kubelet would make: each container keeps its number of GPUs on
// each NUMA node, and gets the best of them.
func divideHonoured(u *usage.Usage, r *podrequest.Request, sets *Sets, f *forecast) ([][]nvtopo.Mask, bool) {
	got := make([]kubeletadmission.Part, len(f.pod.Containers))
	wish := f.wish
	if !f.machine.Admit(f.state, f.pod, &wish, got) {
		return nil, false
	}
	parts := make([][]nvtopo.Mask, len(r.Resources))
	for ri := range r.Resources {
		ai := u.AccelIndex(r.Resources[ri].Name)
		accel := u.Node.Accels[ai]
		parts[ri] = make([]nvtopo.Mask, len(r.Containers))
		simple := true // no init container has any
		for i, c := range r.Containers {
			parts[ri][i] = got[c.Position][ai]
			simple = simple && (c.Kind != podrequest.InitContainer || parts[ri][i] == 0)
		}
		if simple {
			refine(accel, sets[ri], parts[ri])
		}
	}
	return parts, true
}

// refine replaces parts by better ones with as many GPUs of each NUMA node: parts that are each on one
// node are divided again together, others one after the other.
func refine(accel *usage.Accel, set nvtopo.Mask, parts []nvtopo.Mask) {
	t, g := accel.Tables, accel.Graph
	alone := func(p nvtopo.Mask) bool {
		nodes := g.NUMAOf(p)
		return len(nodes) == 1 && nodes[0] != nvtopo.UnknownNUMA
	}
	any := nvtopo.Constraint{AllowMixedModels: true}
	left := set
	for i, p := range parts {
		if p == 0 || alone(p) {
			continue
		}
		best, ok := t.PickWhere(left, left, p.Len(), any, func(s nvtopo.Mask) bool { return sameNodes(g, s, p) })
		if ok {
			parts[i] = best
		}
		left &^= parts[i]
	}
	for node := range g.NUMANodes {
		on := onNode(g, g.NUMANodes[node].ID)
		var sizes, who []int
		for i, p := range parts {
			if alone(p) && p&^on == 0 {
				who, sizes = append(who, i), append(sizes, p.Len())
			}
		}
		better, ok := t.Split(left&on, sizes)
		if !ok {
			continue
		}
		for j, i := range who {
			parts[i] = better[j]
		}
	}
}

// sameNodes reports whether two sets have as many GPUs of each NUMA node.
func sameNodes(g *nvtopo.Graph, a, b nvtopo.Mask) bool {
	for i := range g.NUMANodes {
		on := onNode(g, g.NUMANodes[i].ID)
		if (a & on).Len() != (b & on).Len() {
			return false
		}
	}
	return a.Len() == b.Len()
}
