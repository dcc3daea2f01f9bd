// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// kept is the place of a gang's member that is gone. It is kept for the replacement.
type kept struct {
	node   string
	places []*candidates.Kept // by resource
	until  time.Time
}

// KeepBy says who keeps places: it is given all that are kept from then on, under the lock. Call
// it before the first pod comes.
func (g *Gangs) KeepBy(keep func(map[string][]*candidates.Kept)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keepPlaces = keep
}

// keepPlace keeps the devices of a member that was just removed, if the gang had its minimum
// until then. What a gang keeps is what one member had: one that loses another one, too, is on
// its way out. It needs g.mu.
func (g *Gangs) keepPlace(x *gang, pod *v1.Pod) {
	if g.config.KeepFreed <= 0 || pod.Spec.NodeName == "" || g.kept[x] != nil || !g.lacksOne(x) {
		return
	}
	k := &kept{node: pod.Spec.NodeName, until: g.clock.Now().Add(g.config.KeepFreed)}
	made := pod.CreationTimestamp.Time
	for _, other := range x.pods {
		if t := other.CreationTimestamp.Time; t.Before(made) {
			made = t
		}
	}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if v1helper.IsExtendedResourceName(name) && q.Value() > 0 {
			k.places = append(k.places, candidates.NewKept(x.key, candidates.Kept{Priority: x.priority, Made: made, Resource: name, Count: q.Value()}, "which lost a member there"))
		}
	}
	if len(k.places) > 0 {
		g.kept[x] = k
		g.publishKept()
	}
}

// endKept ends what is kept for a gang whose replacement has its place, that lost more members or
// is gone, or whose time is over. It needs g.mu.
func (g *Gangs) endKept(x *gang) {
	k := g.kept[x]
	if k == nil || g.gangs[x.key] == x && g.clock.Now().Before(k.until) && g.lacksOne(x) {
		return
	}
	delete(g.kept, x)
	g.publishKept()
	g.Changed() // other gangs may fit now
}

// lacksOne reports whether the gang is one member short of its minimum, one that failed included,
// and nobody is on the way to be that member. A gang that events come for too often to read it
// loses many: it is not. It needs g.mu.
func (g *Gangs) lacksOne(x *gang) bool {
	if x.attempt != nil {
		return false
	}
	g.incomplete(x) // reads it
	if x.stale || x.read == nil || x.read.Err != nil {
		return false
	}
	have := x.bound()
	for _, pod := range x.read.Members.Ended {
		if pod.Status.Phase == v1.PodSucceeded {
			have++
		}
	}
	return x.read.Minimum-have == 1
}

// publishKept keeps all that is kept, for drains too, and nothing else. It needs g.mu.
func (g *Gangs) publishKept() {
	nodes := map[string][]*candidates.Kept{}
	for _, d := range g.drains {
		d.shown = d.gang.holding()
		for node, places := range d.beside() {
			nodes[node] = append(nodes[node], places...)
		}
	}
	for _, k := range g.kept {
		nodes[k.node] = append(nodes[k.node], k.places...)
	}
	g.keepPlaces(nodes)
}
