// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// models says of what models some GPUs of a machine are.
type models struct {
	name    string        // of all of them; empty if it is not known, or there are several
	several []nvtopo.Mask // those of each model by its name, of a machine with several
	key     string        // equal for equal models
}

func modelsOf(g *nvtopo.Graph, set nvtopo.Mask) models {
	set &= nvtopo.FullMask(g.Len())
	if set == 0 {
		return models{}
	}
	name := g.GPUs[set.First()].Model
	same := true
	for rest := set; rest != 0 && same; {
		i := rest.First()
		rest &^= nvtopo.MaskOf(i)
		same = g.GPUs[i].Model == name
	}
	if same {
		return models{name: name, key: name}
	}
	of := map[string]nvtopo.Mask{}
	var names, key []string
	for rest := set; rest != 0; {
		i := rest.First()
		rest &^= nvtopo.MaskOf(i)
		m := g.GPUs[i].Model
		if of[m] == 0 {
			names = append(names, m)
		}
		of[m] |= nvtopo.MaskOf(i)
		key = append(key, m)
	}
	slices.Sort(names)
	out := models{key: strings.Join(key, "\x00")}
	for _, m := range names {
		out.several = append(out.several, of[m])
	}
	return out
}

// kind is the shapes of a gang whose members get GPUs of one model.
type kind struct {
	number  int        // Shape.Kind
	choices [][]string // in each of which all models are allowed
}

// maxChoices bounds how many combinations of models are planned for members of several kinds.
// Beyond it one kind after the other gets its model.
const maxChoices = 64

// kinds returns the kinds for which the model matters, those of the largest members first: there
// are nodes with room of several models, or of others than those of the members that have nodes.
func (g *gang) kinds() (out []kind) {
	for i := range g.parts {
		shape := &g.r.Shapes[g.parts[i].shape]
		if shape.Kind == 0 || shape.GPUs == 0 || slices.ContainsFunc(out, func(k kind) bool { return k.number == shape.Kind }) {
			continue
		}
		k := kind{number: shape.Kind}
		found := g.modelsWithRoom(shape.Kind)
		switch {
		case len(shape.Models) > 0:
			if !slices.ContainsFunc(found, func(m string) bool { return !slices.Contains(shape.Models, m) }) {
				continue
			}
			k.choices = [][]string{shape.Models}
		case len(found) < 2:
			continue
		default:
			for _, m := range found {
				k.choices = append(k.choices, []string{m})
			}
		}
		out = append(out, k)
	}
	return out
}

// modelsWithRoom returns the models of which some node has room for a member of the kind, by name.
func (g *gang) modelsWithRoom(number int) (found []string) {
	last := ""
	add := func(model string) {
		if len(found) > 0 && model == last {
			return
		}
		if last = model; !slices.Contains(found, model) {
			found = append(found, model)
		}
	}
	for i := range g.r.Shapes {
		if g.r.Shapes[i].Kind != number {
			continue
		}
		for n := range g.r.Shapes[i].Nodes {
			s := &g.r.Shapes[i].Nodes[n]
			if s.Slots == nil || s.Members() < 1 || g.t.closed != nil && g.t.closed[n] {
				continue
			}
			if len(s.Slots.alone) == 0 {
				add(s.Slots.model)
			}
			for _, one := range s.Slots.alone {
				add(one.model)
			}
		}
	}
	slices.Sort(found)
	return found
}

// On is what a node has of some models alone: of a machine with several, all if all of them are
// among these, and otherwise that one of which most members fit.
func (s Supply) On(models []string) Supply {
	switch {
	case s.Slots == nil:
		return s
	case len(s.Slots.alone) == 0:
		if slices.Contains(models, s.Slots.model) {
			return s
		}
		return Supply{}
	}
	var best *Slots
	all := true
	for _, one := range s.Slots.alone {
		if !slices.Contains(models, one.model) {
			all = false
		} else if one.Count(worstBand) > best.Count(worstBand) {
			best = one
		}
	}
	if !all || len(models) == 1 {
		s.Slots = best
	}
	return s
}

// on is the request with what nodes have of some models alone, by kind; nil: of any.
func (r *Request) on(choice map[int][]string) *Request {
	out := *r
	out.Shapes = slices.Clone(r.Shapes)
	for i := range out.Shapes {
		s := &out.Shapes[i]
		models := choice[s.Kind]
		if models == nil {
			continue
		}
		nodes := s.Nodes
		s.Nodes = make([]Supply, len(nodes))
		for n := range nodes {
			s.Nodes[n] = nodes[n].On(models)
		}
	}
	if r.Remaining != nil {
		out.Remaining = func(shape, node int, used nvtopo.Mask, placed []int) Supply {
			supply := r.Remaining(shape, node, used, placed)
			if models := choice[r.Shapes[shape].Kind]; models != nil {
				supply = supply.On(models)
			}
			return supply
		}
	}
	return &out
}

// placeByModel plans for each choice of models, and takes the best plan.
func (g *gang) placeByModel(kinds []kind) (*Plan, error) {
	x := &byModel{g: g, kinds: kinds, refused: map[string]int{}}
	combinations := 1
	for _, k := range kinds {
		combinations = min(combinations*len(k.choices), maxChoices+1)
	}
	if combinations <= maxChoices {
		x.try(0, map[int][]string{})
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
func (x *byModel) try(from int, choice map[int][]string) {
	if from == len(x.kinds) {
		x.plan(choice)
		return
	}
	for _, models := range x.kinds[from].choices {
		choice[x.kinds[from].number] = models
		x.try(from+1, choice)
	}
}

// inTurn chooses for one kind after the other, the largest members first, as if those after it
// might have any model. Nothing is proven then.
func (x *byModel) inTurn() {
	choice := map[int][]string{}
	for _, k := range x.kinds {
		var best *candidate
		var models []string
		for _, choice[k.number] = range k.choices {
			x.candidates = nil
			x.plan(choice)
			if c := x.g.best(append(x.candidates, best)); c != nil && c != best {
				best, models = c, choice[k.number]
			}
		}
		if x.candidates = nil; best == nil {
			return
		}
		best.plan.Exact = false
		x.candidates = []*candidate{best}
		choice[k.number] = models
	}
}

func (x *byModel) plan(choice map[int][]string) {
	g := newGang(x.g.t, x.g.r.on(choice), x.g.w, x.g.most)
	c, none := g.place()
	if none == nil {
		c.gang, c.plan = g, g.finish(c.outcome)
		x.candidates = append(x.candidates, c)
		return
	}
	first := strings.Join(choice[x.kinds[0].number], "\x00")
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

// timeTolerance is how much longer than the fastest a plan's all-reduce may take to count as equal.
// Rings of one model differ by less between machines of two makers.
const timeTolerance = 0.1

// DefaultMessage is what each GPU sends in an all-reduce, if the request does not say: a gradient
// bucket of a large model, at which bandwidth counts and latency hardly does.
const DefaultMessage = 1e9

// fastest keeps the candidates whose all-reduce takes as long as the fastest, or little longer. If
// the network of one is not known, what happens inside nodes is compared; what is not known there
// counts as slowest.
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
