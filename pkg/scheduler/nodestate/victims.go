// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Victims is one node for preemption: pods that stay, and holders of devices that could be evicted. It
// finds the devices of the preemptor without some of the holders. Pods that could be evicted and hold
// none of the requested devices are treated as gone.
type Victims struct {
	Holders []fwk.PodInfo // in the order given
	Devices []int         // number of devices of the first requested resource, by holder, including untracked ones

	s        *NodeCache
	x        *cell
	d        *placement.Demand
	snapshot fwk.NodeInfoLister
	stay     []fwk.PodInfo
	base     *usage.Usage
	shares   []share
	scratch  usage.Usage
	// exact: the remaining CPU and memory, or kubelet's managers, decide as well, so that evicting a pod has
	// more effects than freeing its devices.
	exact bool
	here  []fwk.PodInfo
}

// share has the devices of one holder.
type share struct {
	used    []nvtopo.Mask
	counted []int
	foreign []bool
}

// Victims returns the holders of devices on a node. could lists pods that may be evicted, the more
// important ones first; leaving are pods that terminate anyway. It returns nil if the node has no valid
// graph, so that only the number of devices is known.
func (s *NodeCache) Victims(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, could []fwk.PodInfo, leaving map[types.UID]bool) *Victims {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil
	}
	n := u.Node
	t := &Victims{s: s, x: s.cells.ensure(n.Name), d: d, snapshot: snapshot, exact: n.Kubelet != nil || d.NeedsNUMAFit()}
	may := make(map[types.UID]bool, len(could))
	for _, pi := range could {
		may[pi.GetPod().UID] = true
	}
	for _, pi := range info.GetPods() {
		if uid := pi.GetPod().UID; !may[uid] && !leaving[uid] {
			t.stay = append(t.stay, pi)
		}
	}
	t.stay = append(t.stay, s.promised(t.x, d.UID, d.Priority)...)
	in := s.input(t.x.reserved.View(), n, 0, t.stay, snapshot)
	t.base = usage.Compute(&in)
	pods := podInfos(could)
	for i := range could {
		alone := usage.Alone(&in, &pods, i)
		t.add(could[i], &alone)
	}
	t.scratch = *t.base
	t.scratch.Used, t.scratch.Counted, t.scratch.Foreign = slices.Clone(t.base.Used), slices.Clone(t.base.Counted), slices.Clone(t.base.Foreign)
	return t
}

// add adds a pod if it holds devices of the requested kinds; alone is its own usage.
func (t *Victims) add(pi fwk.PodInfo, alone *usage.Usage) {
	devices, any := 0, false
	for ri := range t.d.Resources {
		ai := alone.AccelIndex(t.d.Resources[ri].Name)
		if ai < 0 {
			continue
		}
		has := alone.Used[ai].Len() + alone.Counted[ai]
		any = any || has > 0
		if ri == 0 {
			devices = has
		}
	}
	if !any || len(t.Holders) == eviction.MaxPods {
		return
	}
	t.Holders = append(t.Holders, pi)
	t.Devices = append(t.Devices, devices)
	t.shares = append(t.shares, share{alone.Used, alone.Counted, alone.Foreign})
}

// Exact reports whether each query computes a node's whole usage.
func (t *Victims) Exact() bool { return t.exact }

// Short returns how many devices of the first resource are missing while all holders stay.
func (t *Victims) Short() int {
	u := t.without(0)
	ai := u.AccelIndex(t.d.Resources[0].Name)
	if ai < 0 {
		return 0
	}
	return t.d.Resources[0].Count - (u.FreeAt(ai).Len() - u.Counted[ai])
}

// without returns the usage after the holders of a set are gone; it is valid until the next call.
func (t *Victims) without(gone eviction.Set) *usage.Usage {
	if t.exact {
		t.here = append(t.here[:0], t.stay...)
		for i, pi := range t.Holders {
			if !gone.Has(i) {
				t.here = append(t.here, pi)
			}
		}
		return t.s.computeUsage(t.x, t.base.Node, 0, t.here, t.snapshot)
	}
	u := &t.scratch
	copy(u.Used, t.base.Used)
	copy(u.Counted, t.base.Counted)
	copy(u.Foreign, t.base.Foreign)
	for i := range t.shares {
		if gone.Has(i) {
			continue
		}
		has := &t.shares[i]
		for ai := range u.Used {
			u.Used[ai] |= has.used[ai]
			u.Counted[ai] += has.counted[ai]
			u.Foreign[ai] = u.Foreign[ai] || has.foreign[ai]
		}
	}
	return u
}

// Best implements eviction.Judge.
func (t *Victims) Best(gone eviction.Set) (q eviction.Quality, need eviction.Set, ok bool) {
	u := t.without(gone)
	sets, reason := placement.Pick(u, t.d.Request)
	if reason != placement.Fits {
		return q, 0, false
	}
	for i := range gone.Each() {
		for ri := range t.d.Resources {
			if t.shares[i].used[u.AccelIndex(t.d.Resources[ri].Name)]&sets[ri] != 0 {
				need |= 1 << i
			}
		}
	}
	return qualityOf(u, t.d.Request, sets[0]), need, true
}

// qualityOf rates the set of the first resource.
func qualityOf(u *usage.Usage, r *podrequest.Request, set nvtopo.Mask) eviction.Quality {
	ai := u.AccelIndex(r.Resources[0].Name)
	tables := u.Node.Accels[ai].Tables
	return eviction.Quality{
		Ring: tables.Ring(set), NUMANodes: tables.NUMACount(set),
	}
}

// Plan returns the allocation that a pod would get on a node with the pods of info, beside nominated
// allocations of others. It returns nil if the node has no valid graph or the pod does not fit.
func (s *NodeCache) Plan(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*allocation.Allocation, eviction.Quality) {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil, eviction.Quality{}
	}
	u = s.withPromised(u, d, info, snapshot)
	a, reason := placement.Choose(u, d.Request, false)
	if reason != placement.Fits || !d.HasGPUs() {
		return nil, eviction.Quality{}
	}
	accel := u.Node.Accels[u.AccelIndex(d.Resources[0].Name)]
	return a, qualityOf(u, d.Request, a.Mask(accel.Resource, accel.Graph))
}
