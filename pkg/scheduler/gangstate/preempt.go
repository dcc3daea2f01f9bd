// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// maxPlans bounds the plans of one search for victims. A plan takes some milliseconds.
const maxPlans = 256

// Field has the inputs of a preemption for a gang.
type Field struct {
	Others  []Other
	Budgets *eviction.Budgets
	Goes    func(*v1.Pod) bool // it ends anyway, and soon enough
	Never   bool               // no pod may be evicted: only pods that end anyway are considered
}

// Eviction has the pods that must end for a gang, and its places then.
type Eviction struct {
	Answer  *Answer
	Victims []*v1.Pod               // to be evicted
	Ends    []gangrequest.Key       // gangs whose held places are to be taken back
	Awaited []*v1.Pod               // on the answer's nodes, that end anyway
	Leaves  []Located               // all of these, and the members whose places are taken back
	Infos   map[string]fwk.NodeInfo // of the answer's nodes, without the pods that end
	Gone    sets.Set[types.UID]     // all pods that end, and the members whose places are taken back
}

// Preempt finds the victims for a gang that has no room: pods, gangs, members of gangs above their
// minimum, and places that are held for gangs, all of lower priority. First it plans as if all of them
// were gone; without a plan there are no victims. Then each is spared, the dearest first, if there is
// still a plan that is as good in level, domains and band. No pod is evicted if those that end anyway
// suffice. The error is why there is no plan; without one and without an Eviction there are no possible
// victims.
func (p *Planner) Preempt(q *Question, f *Field) (*Eviction, error) {
	s := &search{p: p, q: q, cleared: map[string]*Cleared{}}
	s.collect(f)
	if _, ok := s.plan(make([]bool, len(s.units.list))); ok {
		return s.eviction(nil), nil
	}
	if len(s.units.list) == 0 || f.Never {
		return nil, nil //nolint:nilnil // there is nobody who could go
	}
	victims, ok := eviction.Choose(s.units.list, f.Budgets.Allowed, maxPlans, s.plan)
	if !ok {
		return nil, s.err
	}
	return s.eviction(victims), nil
}

// search is one search for victims.
type search struct {
	p       *Planner
	q       *Question
	units   units
	infos   map[string]fwk.NodeInfo // by name; nil until first used
	cleared map[string]*Cleared     // by node and the units gone there
	best    *Answer                 // with all units gone
	last    *Answer                 // the last plan that was good enough
	err     error                   // of the last plan that failed
}

// collect reads all nodes.
func (s *search) collect(f *Field) {
	s.units = units{
		on: map[string][]int{}, leaving: map[string][]*v1.Pod{}, going: map[types.UID]bool{}, budgets: f.Budgets,
		resource: s.resource(),
	}
	for _, info := range s.q.Nodes {
		if info.Node() != nil {
			s.units.leave(info, f.Goes)
		}
	}
	if f.Never {
		return
	}
	for _, info := range s.q.Nodes {
		if info.Node() != nil {
			s.units.singles(info, s.q.Turn.Gang.Priority)
		}
	}
	for i := range f.Others {
		if f.Others[i].Key != s.q.Turn.Gang.Key {
			s.units.gang(&f.Others[i], s.q.Turn.Gang.Priority)
		}
	}
}

// plan plans with some units gone. A plan that is worse than the best one is rejected.
func (s *search) plan(gone []bool) (eviction.Plan, bool) {
	q := *s.q
	q.Ahead = true
	q.Cleared = nil
	if len(s.units.on)+len(s.units.leaving) > 0 {
		q.Cleared = func(node string) *Cleared { return s.clear(node, gone) }
	}
	answer, err := s.p.Plan(&q)
	if err != nil {
		s.err = err
		return nil, false
	}
	if s.best == nil {
		s.best = answer
	} else if answer.worse(s.best, spreads(s.q.Turn.Gang)) {
		return nil, false
	}
	s.last = answer
	used := sets.New[string]()
	for i := range answer.Members {
		used.Insert(answer.Members[i].Node)
	}
	return planned{s, used}, true
}

// resource returns the resource whose devices the gang requests; empty if it requests none.
func (s *search) resource() v1.ResourceName {
	for _, pod := range s.q.Turn.Pods {
		if d, err := s.q.Demand(pod); err == nil && gpusOf(d) > 0 {
			return v1.ResourceName(d.Resources[0].Name)
		}
	}
	return ""
}

// planned is a plan of a search.
type planned struct {
	s    *search
	used sets.Set[string] // the nodes of the placed members
}

// Uses reports whether the unit has a member on a node that the plan uses.
func (p planned) Uses(unit int) bool {
	return slices.ContainsFunc(p.s.units.what[unit].members, func(l Located) bool { return p.used.Has(l.Node) })
}

// clear removes from a node the pods that end anyway, and the units that are gone; nil if there are none.
func (s *search) clear(node string, gone []bool) *Cleared {
	if len(s.units.on[node])+len(s.units.leaving[node]) == 0 { // as of most nodes
		return nil
	}
	key := []byte(node)
	for _, u := range s.units.on[node] {
		if gone[u] {
			key = fmt.Appendf(key, " %d", u)
		}
	}
	if len(key) == len(node) && len(s.units.leaving[node]) == 0 {
		return nil
	}
	if known := s.cleared[string(key)]; known != nil {
		return known
	}
	c := &Cleared{Info: s.info(node).Snapshot(), Gone: sets.New[types.UID]()}
	for _, pod := range s.units.leaving[node] {
		c.remove(pod)
	}
	for _, u := range s.units.on[node] {
		for _, l := range s.units.what[u].members {
			if gone[u] && l.Node == node {
				c.remove(l.Pod)
			}
		}
	}
	s.cleared[string(key)] = c
	return c
}

// info returns a node of the question.
func (s *search) info(node string) fwk.NodeInfo {
	if s.infos == nil {
		s.infos = make(map[string]fwk.NodeInfo, len(s.q.Nodes))
		for _, info := range s.q.Nodes {
			if info.Node() != nil {
				s.infos[info.Node().Name] = info
			}
		}
	}
	return s.infos[node]
}

// remove removes a pod from the node. A pod that only has its place there is on no list of pods.
func (c *Cleared) remove(pod *v1.Pod) {
	c.Gone.Insert(pod.UID)
	for _, pi := range c.Info.GetPods() {
		if here := pi.GetPod(); here.UID == pod.UID {
			if err := c.Info.RemovePod(klog.Background(), here); err != nil {
				c.Gone.Delete(pod.UID)
			}
			return
		}
	}
}

// eviction returns the pods that must end for the last plan.
func (s *search) eviction(victims []int) *Eviction {
	gone := make([]bool, len(s.units.list))
	e := &Eviction{Answer: s.last, Infos: map[string]fwk.NodeInfo{}, Gone: sets.New[types.UID]()}
	for _, i := range victims {
		gone[i] = true
		held := s.units.list[i].Kind == eviction.Attempt
		if held {
			e.Ends = append(e.Ends, *s.units.what[i].gang)
		}
		for _, l := range s.units.what[i].members {
			e.Gone.Insert(l.Pod.UID)
			e.Leaves = append(e.Leaves, l)
			if !held {
				e.Victims = append(e.Victims, l.Pod)
			}
		}
	}
	slices.SortFunc(e.Victims, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range s.last.Members {
		node := s.last.Members[i].Node
		if e.Infos[node] != nil {
			continue
		}
		if c := s.clear(node, gone); c != nil {
			e.Infos[node] = c.Info
			for uid := range c.Gone {
				e.Gone.Insert(uid)
			}
			for _, pod := range s.units.leaving[node] {
				e.Awaited, e.Leaves = append(e.Awaited, pod), append(e.Leaves, Located{pod, node})
			}
		}
	}
	return e
}

// worse reports whether an answer is worse than another in the criteria for choosing victims: the time of
// an all-reduce, if it is known; level, domains and worst band.
func (a *Answer) worse(o *Answer, spread bool) bool {
	mine, theirs, band := counts(a.Plan.Domains), counts(o.Plan.Domains), cmp.Compare(a.Plan.Band, o.Plan.Band)
	if spread {
		return cmp.Or(slices.Compare(theirs, mine), band) > 0
	}
	if order, decided := a.Plan.CompareTime(o.Plan); decided {
		return order > 0
	}
	return cmp.Or(cmp.Compare(o.Depth(), a.Depth()), fabric.CompareDomains(mine, theirs), band) > 0
}

// counts returns the number of domains of each level.
func counts(domains [][]int) []int {
	out := make([]int, len(domains))
	for i := range domains {
		out[i] = len(domains[i])
	}
	return out
}

// spreads reports whether a gang wants many domains.
func spreads(g *gangrequest.Gang) bool {
	return g.Wishes.Strategy == fabric.StrategyComputeHeavy || g.Wishes.SpreadOver != ""
}
