// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// candidate is a plan for one choice of models, and its values by the objective.
type candidate struct {
	outcome *outcome
	outer   int   // depth of the smallest domain that has the members and the nodes to be near to
	opened  []int // new domains by level inside that one
	// Members of one shape that are not spread have a solution, spread ones a spread.
	solution *solution
	spread   *spreading

	// judge sets the rest.
	gang *gang
	plan *Plan
	most int   // GPUs of a node
	ring int64 // kB/s
	// Times of an all-reduce: with the network between nodes, and inside the nodes.
	whole, inside estimate
}

// estimate is a time in milliseconds; assumed if it rests on a rule of thumb.
type estimate struct {
	ms             float64
	known, assumed bool
}

// best returns the best of the candidates by the objective: those of the preferred level, if the gang
// names one; those on the hardware that members prefer; the time of an all-reduce, of which all within
// the tolerance of the least are equal, if the network is known and the gang has no near nodes; level
// and domains; if the time has not decided, that inside nodes, likewise; then the rest. Nil candidates
// are ignored. Spread members are compared without the time.
func (g *gang) best(candidates []*candidate) (best *candidate) {
	equal := slices.DeleteFunc(slices.Clone(candidates), func(c *candidate) bool { return c == nil })
	if g.w.preferred > 0 && slices.ContainsFunc(equal, func(c *candidate) bool { return c.plan.Preferred }) {
		equal = slices.DeleteFunc(equal, func(c *candidate) bool { return !c.plan.Preferred })
	}
	if g.hardware && len(equal) > 1 {
		equal = onPreferredHardware(equal)
	}
	timed, known := g.w.spread < 0 && len(equal) > 1, false
	if timed && len(g.near) == 0 {
		equal, known = fastest(equal, true)
	}
	equal = nearest(equal)
	if timed && !known {
		equal, _ = fastest(equal, false)
	}
	for _, c := range equal {
		if best == nil || c.compare(best) < 0 {
			best = c
		}
	}
	return best
}

// nearest keeps the candidates that are best in level and domains.
func nearest(candidates []*candidate) (out []*candidate) {
	for _, c := range candidates {
		order := -1
		if len(out) > 0 {
			order = cmp.Or(cmp.Compare(out[0].outer, c.outer), CompareDomains(c.opened, out[0].opened))
		}
		switch {
		case order < 0:
			out = []*candidate{c}
		case order == 0:
			out = append(out, c)
		}
	}
	return out
}

// compare compares by the rest of the objective, for candidates of one request.
func (c *candidate) compare(o *candidate) int {
	order := cmp.Compare(c.outcome.band, o.outcome.band)
	switch {
	case c.spread != nil && o.spread != nil:
		order = c.spread.compare(o.spread)
	case c.solution != nil && o.solution != nil:
		a, b := *c.solution, *o.solution
		a.cost.disliked, b.cost.disliked = c.disliked(), o.disliked()
		order = cmp.Or(order, a.compare(&b))
	}
	if order != 0 {
		return order
	}
	a, b := slices.Clone(c.plan.Nodes), slices.Clone(o.plan.Nodes)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Compare(a, b)
}

// disliked returns the preference of the nodes taken, negated. A solution leaves it out where all nodes
// of its model are preferred alike.
func (c *candidate) disliked() int64 { return -c.sum(func(s *Supply) int64 { return s.Preference }) }

// sum adds up a weight of the nodes taken, once for each member placed on them.
func (c *candidate) sum(weight func(*Supply) int64) (sum int64) {
	for i, nodes := range c.outcome.nodes {
		supply := c.gang.r.Shapes[c.gang.parts[i].shape].Nodes
		for _, s := range nodes {
			sum += weight(&supply[s.node]) * int64(s.members)
		}
	}
	return sum
}

// onPreferredHardware keeps the candidates with the greatest hardware preference of their nodes, in the
// list itself.
func onPreferredHardware(candidates []*candidate) []*candidate {
	weigh := func(c *candidate) int64 { return c.sum(func(s *Supply) int64 { return s.Hardware }) }
	most := weigh(candidates[0])
	for _, c := range candidates[1:] {
		most = max(most, weigh(c))
	}
	return slices.DeleteFunc(candidates, func(c *candidate) bool { return weigh(c) < most })
}

// timeTolerance is how much longer than the fastest, as a share, a plan's all-reduce may take to be
// treated as equal (decision 0019).
const timeTolerance = 0.1

// fastest keeps the candidates whose all-reduce takes at most timeTolerance longer than the fastest, with
// the network between nodes or without, in the list itself. known reports whether all times are known; if
// not, all candidates are kept with the network, and without it those with a known time, if any.
func fastest(candidates []*candidate, network bool) (kept []*candidate, known bool) {
	least, unknown := math.Inf(1), 0
	for _, c := range candidates {
		if ms, here := c.time(network); here {
			least = min(least, ms)
		} else {
			unknown++
		}
	}
	if unknown == len(candidates) || network && unknown > 0 {
		return candidates, false
	}
	return slices.DeleteFunc(candidates, func(c *candidate) bool {
		ms, here := c.time(network)
		return !here || ms > (1+timeTolerance)*least
	}), unknown == 0
}

// time returns the time of an all-reduce, with the network between nodes or without. With the network, it
// is not known if a link is assumed.
func (c *candidate) time(network bool) (ms float64, known bool) {
	e := c.inside
	if network {
		e = c.whole
	}
	if !e.known || e.assumed {
		return 0, false
	}
	return e.ms, true
}

// estimate sets both times.
func (c *candidate) estimate() {
	g, nodes := c.gang, c.plan.Nodes
	c.whole.ms, c.whole.known = g.t.Estimate(nodes, c.most, c.ring, g.r.Message())
	c.whole.assumed = g.t.weakest(nodes).Assumed
	c.inside.ms, c.inside.known = g.t.Estimate(nodes[:1], c.most, c.ring, g.r.Message())
}

// judge builds the plan and sets the values that decide the time inside nodes: the most GPUs that a node
// gives, and the slowest ring, 0 if it is not known or no node gives two. The GPUs of bound members are
// left out. If members of several shapes are on one node, the slower of their rings is used.
func (c *candidate) judge(g *gang) *candidate {
	c.gang, c.plan, c.ring = g, g.finish(c.outcome), math.MaxInt64
	type use struct{ shape, node int }
	members := map[use]int{}
	for i, nodes := range c.outcome.nodes {
		for _, s := range nodes {
			members[use{g.parts[i].shape, s.node}] += s.members
		}
	}
	gpus := map[int]int{}
	for u, n := range members {
		shape := &g.r.Shapes[u.shape]
		gpus[u.node] += n * shape.GPUs
		c.most = max(c.most, gpus[u.node])
		if n*shape.GPUs > 1 {
			c.ring = min(c.ring, shape.Nodes[u.node].Slots.ring(n))
		}
	}
	if c.ring == math.MaxInt64 {
		c.ring = 0
	}
	c.estimate()
	if g.w.spread < 0 && len(g.near) == 0 {
		c.plan.Millis, _ = c.time(true)
	}
	c.plan.Chosen = c.told()
	return c
}

// told returns the candidate's summary for users.
func (c *candidate) told() Alternative {
	g, t, nodes := c.gang, c.gang.t, c.plan.Nodes
	a := Alternative{Domain: t.DomainName(0, 0), Joins: len(g.bound) > 0}
	switch depth, _ := t.DepthOf(c.plan.Level); {
	case depth > t.Depth():
		a.Domain = t.Name(nodes[0])
	case depth > 0:
		a.Domain = t.DomainName(depth, t.of[depth][nodes[0]])
	}
	var models []string
	for i, shares := range c.outcome.nodes {
		shape := &g.r.Shapes[g.parts[i].shape]
		for _, s := range shares {
			if m := shape.Nodes[s.node].Slots.modelName(); shape.GPUs > 0 && !slices.Contains(models, m) {
				models = append(models, m)
			}
			a.GPUs += s.members * shape.GPUs
		}
	}
	slices.Sort(models)
	a.Model = nameOf(models)
	a.Millis = c.whole.ms
	return a
}

// others returns the best candidates on models other than those of the best of all.
func (g *gang) others(candidates []*candidate, best *candidate) (out []Alternative) {
	byModel := map[string][]*candidate{}
	for _, c := range candidates {
		if model := c.plan.Chosen.Model; model != best.plan.Chosen.Model {
			byModel[model] = append(byModel[model], c)
		}
	}
	for _, list := range byModel {
		out = append(out, g.best(list).plan.Chosen)
	}
	slices.SortFunc(out, func(a, b Alternative) int {
		unknown := func(x Alternative) int { return map[bool]int{true: 1}[x.Millis == 0] }
		return cmp.Or(unknown(a)-unknown(b), cmp.Compare(a.Millis, b.Millis), CompareNames(a.Model, b.Model))
	})
	return out[:min(len(out), maxModelsNamed)]
}

// String returns the summary, such as "8 × NVIDIA-H200 in rack-2, 3.5 ms", or "8 more × NVIDIA-H200 in
// rack-2, 3.5 ms" beside bound members; empty without GPUs.
func (a Alternative) String() string {
	if a.GPUs == 0 {
		return ""
	}
	more := ""
	if a.Joins {
		more = " more"
	}
	s := fmt.Sprintf("%d%s × %s in %s", a.GPUs, more, a.Model, a.Domain)
	if a.Millis > 0 {
		s += ", " + nvtopo.FormatMillis(a.Millis)
	}
	return s
}

// Instead returns the summary beside a chosen plan, such as "rack-1 (NVIDIA-L40S) 16.7 ms"; empty without
// GPUs.
func (a Alternative) Instead() string {
	if a.GPUs == 0 {
		return ""
	}
	s := a.Domain + " (" + a.Model + ")"
	if a.Millis > 0 {
		s += " " + nvtopo.FormatMillis(a.Millis)
	}
	return s
}

// CompareTime compares the all-reduce times of two plans that differ by more than the tolerance: negative
// if p is faster. decided is false if one of the times is not known, or both are equal.
func (p *Plan) CompareTime(o *Plan) (order int, decided bool) {
	if p.Millis == 0 || o.Millis == 0 {
		return 0, false
	}
	switch a, b := p.Millis, o.Millis; {
	case a > (1+timeTolerance)*b:
		return 1, true
	case b > (1+timeTolerance)*a:
		return -1, true
	}
	return 0, false
}

// Better reports whether the plan of an empty cluster is better than the plan for now, so that patience
// should wait: its all-reduce is faster by more than the tolerance or, if one of the times is not known,
// its level is better.
func (t *Tree) Better(empty, now *Plan) bool {
	if empty.Millis > 0 && now.Millis > 0 {
		order, decided := empty.CompareTime(now)
		return decided && order < 0
	}
	a, _ := t.DepthOf(empty.Level)
	b, _ := t.DepthOf(now.Level)
	return a > b
}
