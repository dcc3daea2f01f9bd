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

// Victims is one node as preemption sees it: pods that stay, and holders of devices
// that could go. It judges what the preemptor would get without some of these. Pods
// that could go and hold none of the devices asked count as gone.
type Victims struct {
	Holders []fwk.PodInfo // in the order given
	Devices []int         // of the first resource asked, by holder; also those nobody knows

	s        *NodeCache
	x        *cell
	d        *placement.Demand
	snapshot fwk.NodeInfoLister
	stay     []fwk.PodInfo
	base     *usage.Usage
	shares   []share
	scratch  usage.Usage
	// exact: what remains of CPU and memory, or kubelet's managers, decides as well, so
	// that a pod's leaving is more than its devices' coming free.
	exact bool
	here  []fwk.PodInfo
}

// share is what one holder has.
type share struct {
	used    []nvtopo.Mask
	counted []int
	foreign []bool
}

// Victims looks at a node. could lists pods that may go, the more important ones
// first, leaving those that are going anyway. It returns nil where no graph counts,
// so that devices are only a number.
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

// add takes a pod in if it holds devices of the kinds asked; alone is what it uses.
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

// Exact reports whether each question costs the computing of a node's whole usage.
func (t *Victims) Exact() bool { return t.exact }

// Short is how many devices of the first resource are missing while all holders stay.
func (t *Victims) Short() int {
	u := t.without(0)
	ai := u.AccelIndex(t.d.Resources[0].Name)
	if ai < 0 {
		return 0
	}
	return t.d.Resources[0].Count - (u.FreeAt(ai).Len() - u.Counted[ai])
}

// without is the usage when the holders of a set are gone; valid until the next call.
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

// Plan says what a pod would get on a node as info shows it, beside what is promised
// to others. It is nil where no graph counts or nothing is left.
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
