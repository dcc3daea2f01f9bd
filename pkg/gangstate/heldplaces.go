// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// What is kept for a gang and what it holds by an attempt or a claim are the same devices. While it holds
// them they count as used, so what is published as kept is the rest: others may have what is free beside.

// holding is the attempt or the claim by which a gang holds its places; the zero value says that it holds none.
type holding struct {
	attempt *attempt
	claim   *Claim
}

// holding returns how a gang holds its places. Once one of them is given up it holds none: then all is kept
// again before the place is released.
func (p *placing) holding() holding {
	h := holding{claim: p.claim}
	if p.attempt.live() && !p.attempt.lost {
		h.attempt = p.attempt
	}
	return h
}

// places returns the members that hold places in that way, with their nodes.
func (p *placing) places(h holding) (all []Located) {
	if h.claim != nil {
		all = append(all, h.claim.Places...)
	}
	if h.attempt != nil && p.commit != nil && p.commit.Answer != nil {
		for i := range p.commit.Answer.Members {
			m := &p.commit.Answer.Members[i]
			all = append(all, Located{Pod: m.Pod, Node: m.Node})
		}
	}
	return all
}

// beside returns what of the drain's places its gang does not hold.
func (d *drain) beside() map[string][]*candidates.Kept {
	held := map[string][]*v1.Pod{}
	for _, l := range d.gang.places(d.shown) {
		held[l.Node] = append(held[l.Node], l.Pod)
	}
	if len(held) == 0 {
		return d.places
	}
	rest := map[string][]*candidates.Kept{}
	for node, places := range d.places {
		for _, k := range places {
			if k = k.Less(amountOf(held[node], k.Resource)); k != nil {
				rest[node] = append(rest[node], k)
			}
		}
	}
	return rest
}

// amountOf is how much of a resource pods request, in the units of candidates.Kept.
func amountOf(pods []*v1.Pod, name v1.ResourceName) (amount int64) {
	for _, pod := range pods {
		q := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name]
		if name == v1.ResourceCPU {
			amount += q.MilliValue()
		} else {
			amount += q.Value()
		}
	}
	return amount
}
