// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// models is the models of some GPUs of a machine.
type models struct {
	name    string        // model of all; empty if it is not known, or there are several
	several []nvtopo.Mask // GPUs of each model in the order of names, if the machine has several
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
	number  int // Shape.Kind
	choices []choice
}

// choice is models that members of a kind may all have, and the nodes' supply of them.
type choice struct {
	models []string
	shapes map[int]Shape // of the kind, by their index in Request.Shapes
}

// kinds returns the kinds for which the model matters, those of the largest members first: some nodes
// have room of several models, or of models other than those of the bound members.
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
			k.choices = []choice{{models: shape.Models}}
		case len(found) < 2:
			continue
		default:
			for n := range found {
				k.choices = append(k.choices, choice{models: found[n : n+1]})
			}
		}
		k.divide(g.r, g.work)
		out = append(out, k)
	}
	return out
}

// divide sets each choice's supply of every node, in one walk over the nodes.
func (k *kind) divide(r *Request, work *workspace) {
	for c := range k.choices {
		k.choices[c].shapes = map[int]Shape{}
	}
	to := make([]Shape, len(k.choices))
	for i := range r.Shapes {
		shape := &r.Shapes[i]
		if shape.Kind != k.number {
			continue
		}
		for c := range to {
			to[c] = *shape
			to[c].Nodes, to[c].withSlots = work.supply(len(shape.Nodes)), work.list(len(shape.withSlots))
		}
		last, at := "", -1 // usually the model of the previous node
		for _, n := range shape.withSlots {
			s := &shape.Nodes[n]
			if len(s.Slots.alone) > 0 {
				for c := range to {
					to[c].add(n, s.On(k.choices[c].models))
				}
				continue
			}
			if at < 0 || s.Slots.model != last {
				last = s.Slots.model
				at = slices.IndexFunc(k.choices, func(c choice) bool { return slices.Contains(c.models, last) })
			}
			if at >= 0 {
				to[at].add(n, *s)
			}
		}
		for c := range to {
			k.choices[c].shapes[i] = to[c]
		}
	}
}

// add appends a node's supply; nodes come in their order.
func (s *Shape) add(node int32, has Supply) {
	if has.Slots != nil {
		s.Nodes[node] = has
		s.withSlots = append(s.withSlots, node)
	}
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
		shape := &g.r.Shapes[i]
		if shape.Kind != number {
			continue
		}
		for _, n := range shape.withSlots {
			s := &shape.Nodes[n]
			if s.Members() < 1 || g.t.closed != nil && g.t.closed[n] {
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

// On returns the node's supply of the given models alone. On a machine with several models it is all of
// it if all its models are given, otherwise that of the given model with room for most members.
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

// on returns the request with the nodes' supply restricted to the chosen models, by kind; kinds without a
// choice keep all of it.
func (r *Request) on(chosen map[int]*choice) *Request {
	out := *r
	out.Shapes = slices.Clone(r.Shapes)
	for i := range out.Shapes {
		if c := chosen[out.Shapes[i].Kind]; c != nil {
			out.Shapes[i] = c.shapes[i]
		}
	}
	if r.Remaining != nil {
		out.Remaining = func(shape, node int, used nvtopo.Mask, placed []int) Supply {
			supply := r.Remaining(shape, node, used, placed)
			if c := chosen[r.Shapes[shape].Kind]; c != nil {
				supply = supply.On(c.models)
			}
			return supply
		}
	}
	return &out
}
