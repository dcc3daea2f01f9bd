// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// party is the members of one gang on a node that may be evicted, with the pods that are evicted with
// them.
type party struct {
	needed  []fwk.PodInfo // evicted together
	surplus []fwk.PodInfo // members above the minimum: evicted with needed, or each alone
	others  []*v1.Pod     // those on other nodes: evicted with needed
}

// gangOf returns the part of a pod's gang that is on nodes, as of the preemption's first call; nil if it
// is not known yet. member is false for a pod in no gang.
func (a *attempt) gangOf(pod *v1.Pod, placed func(gangrequest.Key) *eviction.Gang) (g *eviction.Gang, member bool) {
	if placed == nil {
		return nil, false
	}
	key, member := gangrequest.KeyOf(pod)
	if !member {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g, known := a.gangs[key]
	if !known {
		g = placed(key)
		a.gangs[key] = g
	}
	return g, true
}

// mayGo reports whether all pods that are evicted with a pod are known, and of a lower priority than the
// preemptor.
func (s *site) mayGo(a *attempt, pod *v1.Pod) bool {
	g, member := a.gangOf(pod, s.p.profile.Placed)
	if !member {
		return true
	}
	if g != nil {
		with := g.With(pod.UID)
		if eviction.Below(with, corev1.PodPriority(s.pod)) && (len(with) > 0 || s.p.unbound(pod)) {
			return true
		}
	}
	a.spared.Store(true)
	return false
}

// unbound reports whether a pod that is on a node in the scheduler's cache is only assumed there.
func (p *preemptor) unbound(pod *v1.Pod) bool {
	now, err := p.evaluator.PodLister.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.Spec.NodeName == ""
}

// hasMember reports whether a node has a member of a gang of a lower priority than a pod.
func (p *preemptor) hasMember(pod *v1.Pod, info fwk.NodeInfo) bool {
	return slices.ContainsFunc(info.GetPods(), func(pi fwk.PodInfo) bool {
		other := pi.GetPod()
		return p.profile.Placed != nil && corev1.PodPriority(other) < corev1.PodPriority(pod) && isMember(other)
	})
}

func isMember(pod *v1.Pod) bool {
	_, member := gangrequest.KeyOf(pod)
	return member
}

// findParties finds the gangs among the pods that may be evicted.
func (s *site) findParties(a *attempt) {
	here := uidsOf(s.could)
	of := map[gangrequest.Key]*party{}
	for _, pi := range s.could {
		pod := pi.GetPod()
		g, _ := a.gangOf(pod, s.p.profile.Placed)
		if g == nil {
			continue
		}
		with := g.With(pod.UID)
		key, _ := gangrequest.KeyOf(pod)
		x := of[key]
		if x == nil {
			x = &party{}
			of[key] = x
		}
		switch isNeeded := slices.ContainsFunc(g.Needed, func(p *v1.Pod) bool { return p.UID == pod.UID }); {
		case isNeeded:
			if x.needed = append(x.needed, pi); s.parties == nil {
				s.parties = map[types.UID]*party{}
			}
			s.parties[pod.UID] = x
			x.others = slices.DeleteFunc(with, func(p *v1.Pod) bool { return here[p.UID] })
		case len(with) > 0:
			x.surplus = append(x.surplus, pi)
		}
	}
}

// with adds to some pods those on the node that are evicted with them.
func (s *site) with(pods []fwk.PodInfo) []fwk.PodInfo {
	if s.parties == nil {
		return pods
	}
	out, has := slices.Clone(pods), uidsOf(pods)
	for _, pi := range pods {
		x := s.parties[pi.GetPod().UID]
		if x == nil {
			continue
		}
		for _, other := range slices.Concat(x.needed, x.surplus) {
			if uid := other.GetPod().UID; !has[uid] {
				has[uid] = true
				out = append(out, other)
			}
		}
	}
	return out
}

// othersOf returns the pods on other nodes that are evicted with some of this one.
func (s *site) othersOf(pods []fwk.PodInfo) (out []*v1.Pod) {
	seen := map[*party]bool{}
	for _, pi := range pods {
		if x := s.parties[pi.GetPod().UID]; x != nil && !seen[x] {
			seen[x] = true
			out = append(out, x.others...)
		}
	}
	return out
}

// coming returns the victims that their gangs need and that are about to be bound: evictPod does not evict
// these itself, and the pods evicted with them must not be evicted without them.
func (s *site) coming(victims []fwk.PodInfo) (out []*v1.Pod) {
	for _, pi := range victims {
		if pod := pi.GetPod(); s.parties[pod.UID] != nil && s.p.unbound(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// parts divides pods into groups that are evicted together, in their order.
func (s *site) parts(pods []fwk.PodInfo) (out [][]fwk.PodInfo) {
	at := map[*party]int{}
	for _, pi := range pods {
		x := s.parties[pi.GetPod().UID]
		if i, has := at[x]; x != nil && has {
			out[i] = append(out[i], pi)
			continue
		}
		at[x] = len(out)
		out = append(out, []fwk.PodInfo{pi})
	}
	return out
}

// describeAll describes pods for a comparison, including those on other nodes that are evicted with them.
func (s *site) describeAll(pods []fwk.PodInfo) []eviction.Pod {
	out, seen := make([]eviction.Pod, len(pods)), map[*party]bool{}
	for i, pi := range pods {
		out[i] = s.p.describe(pi.GetPod(), s.budgets)
		if x := s.parties[pi.GetPod().UID]; x != nil && !seen[x] {
			seen[x] = true
			s.addAll(&out[i], x.others)
		}
	}
	return out
}

func (s *site) addAll(to *eviction.Pod, pods []*v1.Pod) {
	for _, other := range pods {
		o := s.p.describe(other, s.budgets)
		to.Add(&o)
	}
}

// gangsIn sets in a search which of the holders are evicted together, and the other pods that are evicted
// with them.
func (s *site) gangsIn(search *eviction.Search) {
	if s.parties == nil {
		return
	}
	search.With = make([]eviction.Set, len(s.holders))
	at := map[types.UID]int{}
	for i, pi := range s.holders {
		at[pi.GetPod().UID] = i
	}
	seen := map[*party]bool{}
	for i, pi := range s.holders {
		x := s.parties[pi.GetPod().UID]
		if x == nil {
			continue
		}
		for _, other := range slices.Concat(x.needed, x.surplus) {
			j, holds := at[other.GetPod().UID]
			switch {
			case holds && j != i:
				search.With[i] |= 1 << j
			case !holds && !seen[x]:
				s.addAll(&search.Pods[i], []*v1.Pod{other.GetPod()})
			}
		}
		if !seen[x] {
			s.addAll(&search.Pods[i], x.others)
		}
		seen[x] = true
	}
}

// goesWithHolder reports whether a pod that holds no devices is evicted with one that does.
func (s *site) goesWithHolder(pod *v1.Pod, holds map[types.UID]bool) bool {
	x := s.parties[pod.UID]
	return x != nil && slices.ContainsFunc(x.needed, func(pi fwk.PodInfo) bool { return holds[pi.GetPod().UID] })
}

// evictOthers evicts the pods on other nodes that are evicted with a pod's victims.
func (p *preemptor) evictOthers(pod *v1.Pod, others []*v1.Pod) {
	if len(others) > 0 && p.profile.Evict != nil {
		p.profile.Evict(pod, others)
	}
}

// evictPod evicts a victim. A member of a gang that is only assumed is not evicted: the gang gives its
// places back, and if it has passed Permit meanwhile, all of it stays.
func (p *preemptor) evictPod(ctx context.Context, c preemption.Candidate, pod, victim *v1.Pod, plugin string) error {
	if isMember(victim) && p.profile.Yield != nil && p.unbound(victim) {
		p.profile.Yield([]types.UID{victim.UID}, fmt.Sprintf("gang: places on node %s are taken by a pod of a higher priority", c.Name()))
		return nil
	}
	return p.evictOne(ctx, c, pod, victim, plugin)
}
