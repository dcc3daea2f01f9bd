// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// problem is which pods may be moved where, and what that is worth.
type problem struct {
	view      *View
	size      int // of the groups
	maxMoves  int
	steps     int // left
	nodes     []*place
	pods      []movable
	allowed   []int32 // disruptions, by budget
	before    int     // free linked groups
	ideal     int
	cordoned  []Cordoned
	staying   map[string][]string
	proven    bool
	removable map[*place][]removal // what was found of nodes as they are or became
}

// movable is a pod that may be moved.
type movable struct {
	view     *Pod
	node     int // where it is
	request  *podrequest.Request
	eligible placement.Eligibility
	budgets  []int
}

// place is a node with some pods moved away and others moved there. It is immutable; value and
// used are worked out when somebody asks.
type place struct {
	view  *Node
	p     *problem
	in    usage.Input // with what was moved
	pods  []int       // movable pods that are on it and were from the start
	used  *usage.Usage
	value int // free linked groups; -1: not known yet
}

// placed is what a pod gets on a node.
type placed struct {
	allocation *allocation.Allocation
	set        nvtopo.Mask
}

// newProblem reads a view.
func (v *View) newProblem(opt AdviceOptions) *problem {
	p := &problem{
		view: v, size: opt.GPUs, maxMoves: cmp.Or(opt.MaxMoves, DefaultMaxMoves), steps: cmp.Or(opt.Steps, DefaultSteps), staying: map[string][]string{}, removable: map[*place][]removal{},
	}
	people := newPeople(v.objects)
	p.allowed = people.budgets.Allowed
	type supply struct{ free, capacity int }
	models := map[string]supply{}
	for i, n := range v.Nodes {
		at := &place{view: n, p: p, in: n.input, used: n.used, value: -1}
		p.nodes = append(p.nodes, at)
		if !n.Open() { // nothing on it is free for anybody, wherever its pods go
			if n.onlyCordoned() {
				p.cordoned = append(p.cordoned, Cordoned{n.Name, n.free(), at.groups()})
			}
			continue
		}
		p.before += at.worth()
		s := models[n.Model]
		models[n.Model] = supply{s.free + n.Supply.FreeGPUs, s.capacity + v.counter.Capacity(n.known, n.accel, p.size, v.objects.Now).Linked}
		for j := range n.Pods {
			pod := &n.Pods[j]
			if pod.Unmovable != "" {
				p.staying[pod.Unmovable] = append(p.staying[pod.Unmovable], pod.FullName()+" on "+n.Name)
				continue
			}
			at.pods = append(at.pods, len(p.pods))
			p.pods = append(p.pods, p.movable(n, pod, i, people))
		}
	}
	for _, s := range models { // pods move among machines of one model only
		p.ideal += min(s.capacity, s.free/p.size)
	}
	return p
}

func (p *problem) movable(n *Node, pod *Pod, node int, people *people) movable {
	live := n.input.Pods.(usage.LivePods)
	at := slices.IndexFunc(live, func(l usage.LivePod) bool { return l.Object.UID == pod.UID })
	object := live[at].Object
	r, err := parse(object, n.known.Resources)
	if err != nil { // such a pod is Unmovable
		r = &podrequest.Request{}
	}
	return movable{view: pod, node: node, request: r, eligible: placement.EligibilityOf(object), budgets: people.budgets.Of(object)}
}

// usage is what is used on the node.
func (n *place) usage() *usage.Usage {
	if n.used == nil {
		n.used = usage.Compute(&n.in)
	}
	return n.used
}

// free is how many GPUs of an open node a pod could be given.
func (n *place) free() int {
	u := n.usage()
	return u.FreeAt(n.view.accel).Len() - u.Counted[n.view.accel]
}

// worth is how many linked groups are free on the node, 0 where they do not count.
func (n *place) worth() int {
	if n.value < 0 {
		n.value = 0
		if n.view.Open() {
			n.value = n.groups()
		}
	}
	return n.value
}

// groups is how many linked groups are free on the node, were it open.
func (n *place) groups() int {
	return n.p.view.counter.Count(n.usage(), n.view.accel, n.p.size, n.in.Now, placement.BesideInput(n.in)).Linked
}

// room is what the node has left of all that the scheduler counts.
func (n *place) room() placement.Room {
	allocatable := usage.AmountsOf(n.view.object.Status.Allocatable)
	room := placement.NewRoom(&allocatable, allocatable.Pods())
	pods := n.in.Pods.(usage.LivePods)
	for i := range pods {
		room.TakeAll(pods[i].Amounts(), 1)
	}
	for i := range n.in.Reservations {
		room.Take(n.in.Reservations[i].Request, 1)
	}
	return room
}

// without is the node once a pod has left it.
func (n *place) without(pod int) *place {
	out := *n
	uid := n.p.pods[pod].view.UID
	out.in.Pods = slices.DeleteFunc(slices.Clone(n.in.Pods.(usage.LivePods)), func(p usage.LivePod) bool { return p.Object.UID == uid })
	out.pods = slices.DeleteFunc(slices.Clone(n.pods), func(p int) bool { return p == pod })
	out.used, out.value = nil, -1
	return &out
}

// with is the node once a pod has come to it. It has another UID by then: kubelet's record of the
// old one does not concern it.
func (n *place) with(pod int, to placed) *place {
	out := *n
	m := &n.p.pods[pod]
	out.in.Reservations = append(slices.Clip(n.in.Reservations), usage.Reservation{UID: "moved-" + m.view.UID, Allocation: to.allocation, Request: m.request})
	out.used, out.value = nil, -1
	return &out
}
