// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Other is a gang whose members a preemptor may evict.
type Other struct {
	Key      gangrequest.Key
	Priority int32
	Needed   []Located // members on nodes that it needs for its minimum
	Surplus  []Located // those above, the lowest rank first
	Held     []Located // places held for members: they are taken back, and no pod is evicted
}

// Located is a pod and the node that it, or its place, is on.
type Located struct {
	Pod  *v1.Pod
	Node string
}

// Others lists the gangs of a lower priority than the given one that have members or places on nodes.
func (g *Gangs) Others(priority int32) (out []Other) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.queue.gangs {
		if g.queue.readNow(x); x.read.Priority >= priority {
			continue
		}
		if o := x.other(); len(o.Needed)+len(o.Surplus)+len(o.Held) > 0 {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Other) int { return compareKeys(a.Key, b.Key) })
	return out
}

// Placed returns the members of a gang on nodes; nil if it is unknown.
func (g *Gangs) Placed(key gangrequest.Key) *eviction.Gang {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.gangs[key]
	if x == nil {
		return nil
	}
	g.queue.readNow(x)
	o := x.other()
	return &eviction.Gang{Needed: podsOf(o.Needed), Surplus: podsOf(o.Surplus)}
}

// compareKeys orders gangs by source, namespace and name.
func compareKeys(a, b gangrequest.Key) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func podsOf(located []Located) []*v1.Pod {
	out := make([]*v1.Pod, len(located))
	for i := range located {
		out[i] = located[i].Pod
	}
	return out
}

// other returns the gang for a preemptor. The caller holds stepper.mu, and the gang is read.
func (x *gang) other() Other {
	o := Other{Key: x.key, Priority: x.read.Priority, Held: x.heldPlaces()}
	coming := map[types.UID]string{} // members of a committed attempt, which are treated as bound
	if a := x.attempt; a != nil && a.phase == committed {
		coming = x.placesOf(func(uid types.UID) bool { return a.steps[uid] != held })
	}
	placed := func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" || coming[pod.UID] != "" }
	minimum := x.read.Minimum - len(x.read.Members.Ended)
	if x.read.Err != nil {
		minimum = len(x.read.Members.Live)
	}
	for _, pod := range x.read.Members.Live {
		if !placed(pod) {
			continue
		}
		at := Located{pod, pod.Spec.NodeName}
		if at.Node == "" {
			at.Node = coming[pod.UID]
		}
		if len(o.Needed) < minimum {
			o.Needed = append(o.Needed, at)
		} else {
			o.Surplus = append(o.Surplus, at)
		}
	}
	return o
}

// heldPlaces returns the places of an attempt that is not committed, of members of a committed one that
// are to come again, and those of a claim.
func (x *gang) heldPlaces() (out []Located) {
	if x.claim != nil {
		return x.claim.Places
	}
	a := x.attempt
	if a == nil {
		return nil
	}
	nodes := x.placesOf(func(uid types.UID) bool {
		return a.steps[uid] != through && (a.phase != committed || a.steps[uid] == held)
	})
	for _, uid := range a.members {
		if pod := x.pods[uid]; pod != nil && nodes[uid] != "" {
			out = append(out, Located{pod, nodes[uid]})
		}
	}
	return out
}

// placesOf returns the nodes of the attempt's members for which of is true.
func (p *placing) placesOf(of func(types.UID) bool) map[types.UID]string {
	out := map[types.UID]string{}
	if p.commit == nil || p.commit.Answer == nil {
		return out
	}
	for i := range p.commit.Answer.Members {
		if m := &p.commit.Answer.Members[i]; of(m.Pod.UID) {
			out[m.Pod.UID] = m.Node
		}
	}
	return out
}

// unit has the members of a unit of victims.
type unit struct {
	gang    *gangrequest.Key // nil for a single pod
	members []Located
}

// units are the possible victims for a gang, and the pods that end anyway.
type units struct {
	list     []eviction.Unit
	what     []unit
	on       map[string][]int     // node -> units there
	leaving  map[string][]*v1.Pod // node -> pods that end anyway
	going    map[types.UID]bool   // those, by UID
	resource v1.ResourceName      // the devices that the gang requests
	budgets  *eviction.Budgets
}

func (u *units) add(kind eviction.Kind, name string, priority int32, needs int, gang *gangrequest.Key, members []Located) int {
	members = slices.DeleteFunc(slices.Clone(members), func(l Located) bool { return u.going[l.Pod.UID] })
	x := eviction.Unit{Kind: kind, Name: name, Priority: priority, Needs: needs}
	for _, l := range members {
		x.Pods = append(x.Pods, u.describe(l.Pod, kind))
	}
	at := len(u.list)
	u.list, u.what = append(u.list, x), append(u.what, unit{gang, members})
	seen := sets.New[string]()
	for _, l := range members {
		if !seen.Has(l.Node) {
			seen.Insert(l.Node)
			u.on[l.Node] = append(u.on[l.Node], at)
		}
	}
	return at
}

// describe describes a pod for the choice. The budgets protect running pods.
func (u *units) describe(pod *v1.Pod, kind eviction.Kind) eviction.Pod {
	out := eviction.Pod{Priority: corev1.PodPriority(pod), Started: eviction.NotStarted, Devices: devicesOf(pod, u.resource)}
	if t := pod.Status.StartTime; t != nil {
		out.Started = t.UnixNano()
	}
	if kind != eviction.Attempt {
		out.Budgets = u.budgets.Of(pod)
	}
	return out
}

// devicesOf returns how many devices a pod requests.
func devicesOf(pod *v1.Pod, name v1.ResourceName) (n int) {
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits[name]
		n += int(limit.Value())
	}
	return n
}

// leave records the pods on a node that end anyway.
func (u *units) leave(info fwk.NodeInfo, goes func(*v1.Pod) bool) {
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); goes(pod) {
			u.leaving[info.Node().Name] = append(u.leaving[info.Node().Name], pod)
			u.going[pod.UID] = true
		}
	}
}

// singles adds the pods on a node that are in no gang. One that should have ended by now cannot be
// evicted.
func (u *units) singles(info fwk.NodeInfo, priority int32) {
	for _, pi := range info.GetPods() {
		pod := pi.GetPod()
		if corev1.PodPriority(pod) >= priority || pod.DeletionTimestamp != nil || u.going[pod.UID] {
			continue
		}
		if _, member := gangrequest.KeyOf(pod); member {
			continue
		}
		u.add(eviction.Single, pod.Namespace+"/"+pod.Name, corev1.PodPriority(pod), eviction.NoUnit, nil, []Located{{pod, info.Node().Name}})
	}
}

// gang adds the units of another gang. Evicting a unit evicts those that need it, so it stays if one of
// them has the preemptor's priority or a higher one.
func (u *units) gang(o *Other, priority int32) {
	name, needs := o.Key.String(), eviction.NoUnit
	stay := len(o.Surplus)
	for stay > 0 && eviction.Below(podsOf(o.Surplus[stay-1:stay]), priority) {
		stay--
	}
	if len(o.Needed) > 0 && stay == 0 && eviction.Below(podsOf(o.Needed), priority) {
		needs = u.add(eviction.Whole, name, o.Priority, eviction.NoUnit, &o.Key, o.Needed)
	}
	if len(o.Held) > 0 {
		u.add(eviction.Attempt, name, o.Priority, needs, &o.Key, o.Held)
	}
	for _, l := range o.Surplus[stay:] {
		needs = u.add(eviction.Surplus, name, o.Priority, needs, &o.Key, []Located{l})
	}
}
