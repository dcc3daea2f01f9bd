// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// maxChoices bounds how many combinations of models are planned for members of several kinds.
// Beyond it one kind after the other gets its model.
const maxChoices = 64

// placeByModel plans for each choice of models, and takes the best plan.
func (g *gang) placeByModel(kinds []kind) (*Plan, error) {
	x := &byModel{g: g, kinds: kinds, refused: map[string]int{}}
	combinations := 1
	for _, k := range kinds {
		combinations = min(combinations*len(k.choices), maxChoices+1)
	}
	if combinations <= maxChoices {
		x.try(0, map[int]*choice{})
	} else {
		x.inTurn()
	}
	if best := g.best(x.candidates); best != nil {
		return best.plan, nil
	}
	return nil, x.unplaceable()
}

// byModel is the plans for all choices of models.
type byModel struct {
	g          *gang
	kinds      []kind
	candidates []*candidate
	refused    map[string]int // members that fit, by the models of the first kind
	nearest    *UnplaceableError
}

// try plans for all choices of the kinds from one on.
func (x *byModel) try(from int, chosen map[int]*choice) {
	if from == len(x.kinds) {
		x.plan(chosen)
		return
	}
	k := &x.kinds[from]
	for c := range k.choices {
		chosen[k.number] = &k.choices[c]
		x.try(from+1, chosen)
	}
}

// inTurn chooses for one kind after the other, the largest members first, as if those after it
// might have any model. Nothing is proven then.
func (x *byModel) inTurn() {
	chosen := map[int]*choice{}
	for i := range x.kinds {
		k := &x.kinds[i]
		var best *candidate
		var models *choice
		for c := range k.choices {
			chosen[k.number] = &k.choices[c]
			x.candidates = nil
			x.plan(chosen)
			if found := x.g.best(append(x.candidates, best)); found != best {
				best, models = found, &k.choices[c]
			}
		}
		if x.candidates = nil; best == nil {
			return
		}
		best.plan.Exact = false
		x.candidates = []*candidate{best}
		chosen[k.number] = models
	}
}

// plan plans for one choice of each kind.
func (x *byModel) plan(chosen map[int]*choice) {
	g := newGang(x.g.t, x.g.r.on(chosen), x.g.w, x.g.most)
	c, none := g.place()
	if none == nil {
		c.gang, c.plan = g, g.finish(c.outcome)
		x.candidates = append(x.candidates, c)
		return
	}
	first := strings.Join(chosen[x.kinds[0].number].models, "\x00")
	if have, ok := x.refused[first]; !ok || none.Have > have {
		x.refused[first] = none.Have
	}
	if x.nearest == nil || none.Have > x.nearest.Have {
		x.nearest = none
	}
}

// unplaceable says how many members fit on each model of the first kind, and whether they would on
// several.
func (x *byModel) unplaceable() error {
	e := x.nearest
	for models, have := range x.refused {
		e.Models = append(e.Models, ModelRoom{nameOf(strings.Split(models, "\x00")), have})
	}
	slices.SortFunc(e.Models, func(a, b ModelRoom) int {
		return cmp.Or(cmp.Compare(b.Have, a.Have), CompareNames(a.Model, b.Model))
	})
	_, none := x.g.place()
	e.MixedFits = none == nil
	return e
}

// nameOf names models as node labels do.
func nameOf(models []string) string {
	names := slices.Clone(models)
	for i, m := range names {
		if names[i] = strings.Join(strings.Fields(m), "-"); m == "" {
			names[i] = "an unknown model"
		}
	}
	return strings.Join(names, " and ")
}

// best is the first of the candidates by the objective: level and domains; then the time of an
// all-reduce, of which what is within the tolerance of the least is equal; then the rest. A nil
// candidate is none. Members that are spread do without the time.
func (g *gang) best(candidates []*candidate) (best *candidate) {
	var equal []*candidate
	for _, c := range candidates {
		if c == nil {
			continue
		}
		order := -1
		if len(equal) > 0 {
			order = cmp.Or(cmp.Compare(equal[0].outer, c.outer), CompareDomains(c.opened, equal[0].opened))
		}
		switch {
		case order < 0:
			equal = []*candidate{c}
		case order == 0:
			equal = append(equal, c)
		}
	}
	if len(equal) > 1 && g.w.spread < 0 {
		equal = fastest(equal)
	}
	for _, c := range equal {
		if best == nil || c.compare(best) < 0 {
			best = c
		}
	}
	return best
}

// compare is the rest of the objective, for candidates of one request.
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

// disliked is the preference of the nodes taken, negated. A solution leaves it out where all nodes
// of its model are preferred alike.
func (c *candidate) disliked() (sum int64) {
	for i, nodes := range c.outcome.nodes {
		for _, s := range nodes {
			sum -= c.gang.r.Shapes[c.gang.parts[i].shape].Nodes[s.node].Preference * int64(s.members)
		}
	}
	return sum
}

// timeTolerance is how much longer than the fastest, as a share, a plan's all-reduce may take to count
// as equal (decision 0019).
const timeTolerance = 0.1

// DefaultMessage is how many bytes each GPU sends in an all-reduce, if the request does not say: 1 GB.
// At that size bandwidth decides, and latency hardly counts.
const DefaultMessage = 1e9

// fastest keeps the candidates whose all-reduce takes at most timeTolerance longer than the fastest.
// If the network of any is not known, only the time inside nodes is compared. A candidate whose ring
// is not known is dropped, unless no ring is known: then all are kept.
func fastest(candidates []*candidate) []*candidate {
	known := true
	for _, c := range candidates {
		var here bool
		if c.ms, here = c.time(true); !here {
			known = false
		}
	}
	if !known {
		for _, c := range candidates {
			var here bool
			if c.ms, here = c.time(false); !here {
				c.ms = -1
			}
		}
	}
	least := -1.0
	for _, c := range candidates {
		if c.ms >= 0 && (least < 0 || c.ms < least) {
			least = c.ms
		}
	}
	if least < 0 {
		return candidates
	}
	return slices.DeleteFunc(candidates, func(c *candidate) bool { return c.ms < 0 || c.ms > (1+timeTolerance)*least })
}

// time is Tree.Estimate of a candidate's plan, with the network between its nodes or without. The
// GPUs of bound members are left out. Where members of several shapes are on one node, the slower
// ring of theirs counts.
func (c *candidate) time(network bool) (ms float64, known bool) {
	type use struct{ shape, node int }
	g := c.gang
	members := map[use]int{}
	for i, nodes := range c.outcome.nodes {
		for _, s := range nodes {
			members[use{g.parts[i].shape, s.node}] += s.members
		}
	}
	gpus := map[int]int{}
	most, ring := 0, int64(math.MaxInt64)
	for u, n := range members {
		shape := &g.r.Shapes[u.shape]
		gpus[u.node] += n * shape.GPUs
		most = max(most, gpus[u.node])
		if n*shape.GPUs > 1 {
			ring = min(ring, shape.Nodes[u.node].Slots.ring(n))
		}
	}
	bytes := g.r.MessageBytes
	if bytes <= 0 {
		bytes = DefaultMessage
	}
	nodes := c.plan.Nodes
	if !network {
		nodes = nodes[:1]
	}
	return g.t.Estimate(nodes, most, ring, bytes)
}
