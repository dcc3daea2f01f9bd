// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// plannedNode is a node with the plans for woken pods, as seen by pods of each priority, which must leave
// the devices of nominated pods free.
type plannedNode struct {
	r            *round
	at           *nodeState
	base         *view // for pods that need not leave anything to others
	byPriority   map[int32]*view
	noDevicesFor map[string]bool // by request
}

func newPlannedNode(r *round, at *nodeState) *plannedNode {
	p := &plannedNode{r: r, at: at, base: at.view, noDevicesFor: map[string]bool{}}
	if len(at.plans) > 0 {
		p.replan()
	}
	return p
}

// replan computes the node again with the present plans.
func (p *plannedNode) replan() {
	p.byPriority = nil
	if v := p.look(func(*v1.Pod) bool { return false }, ""); v != nil {
		p.base = v
	}
}

func (p *plannedNode) look(count func(nominated *v1.Pod) bool, except types.UID) *view {
	return newView(p.at.source, p.at.plans, count, except, p.r.k.clock.Now())
}

// viewFor returns the node as seen by a pod.
func (p *plannedNode) viewFor(w *waitingPod) *view {
	d := w.demand
	leavesTo := func(pod *v1.Pod) bool {
		return comesFirst(pod, d) && !slices.ContainsFunc(p.at.plans, func(o *plan) bool { return o.of.pod.UID == pod.UID })
	}
	before, own := false, false
	for _, pi := range p.at.view.nominated {
		before = before || leavesTo(pi.GetPod())
		own = own || pi.GetPod().UID == d.UID
	}
	var inDoubt types.UID
	if p.r.again[d.UID] == p.at.view.node.Name {
		inDoubt, own = d.UID, true
	}
	if !before && inDoubt == "" {
		return p.base
	}
	if v := p.byPriority[d.Priority]; v != nil && !own {
		return v
	}
	v := p.look(leavesTo, inDoubt)
	if v == nil {
		return p.base
	}
	if !own {
		if p.byPriority == nil {
			p.byPriority = map[int32]*view{}
		}
		p.byPriority[d.Priority] = v
	}
	return v
}

// comesFirst reports whether a pod that is nominated for a node precedes a pod of this demand.
func comesFirst(nominated *v1.Pod, d *placement.Demand) bool {
	return nominated.UID != d.UID && corev1.PodPriority(nominated) >= d.Priority
}
