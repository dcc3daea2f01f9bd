// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxChoices is the maximum number of plans made for members of several kinds. Beyond that many
// combinations of models, the kinds get their models one after the other.
const maxChoices = 64

// placeByModel plans for each choice of models, and returns the best plan.
func (g *gang) placeByModel(kinds []kind) (*Plan, error) {
	x := &byModel{g: g, kinds: kinds, refused: map[string]int{}}
	combinations := 1
	for _, k := range kinds {
		combinations = min(combinations*len(k.choices), maxChoices+1)
	}
	if combinations <= maxChoices {
		x.try(0, map[int]*choice{})
	} else {
		x.choosing = true
		x.inTurn(0, map[int]*choice{})
	}
	if best := g.best(x.candidates); best != nil {
		best.plan.Others = g.others(x.candidates, best)
		return best.plan, nil
	}
	return nil, x.unplaceable()
}

// byModel collects the plans for all choices of models.
type byModel struct {
	g          *gang
	kinds      []kind
	candidates []*candidate
	refused    map[string]int // members that fit, by the models of the first kind
	nearest    *UnplaceableError
	unproven   bool // some choices were not tried, or not in all ways
	choosing   bool // for one kind after the other
	plans      int
}

// try plans for all choices of the kinds from index from on.
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

// inTurn chooses models for one kind after the other, the largest members first, as if those after it
// might have any model, and takes the next best choice where that leaves those no place. It reports
// whether there is a plan. Such a plan is not proven to be the best.
func (x *byModel) inTurn(from int, chosen map[int]*choice) bool {
	if from == len(x.kinds) {
		return true
	}
	k := &x.kinds[from]
	defer delete(chosen, k.number)
	of := map[*candidate]*choice{}
	var left []*candidate
	for c := range k.choices {
		x.plans++
		chosen[k.number], x.candidates = &k.choices[c], nil
		x.plan(chosen)
		for _, found := range x.candidates {
			of[found], left = &k.choices[c], append(left, found)
		}
	}
	for len(left) > 0 {
		best := x.g.best(left)
		chosen[k.number], x.candidates = of[best], []*candidate{best}
		best.plan.Exact = false
		if x.inTurn(from+1, chosen) {
			return true
		}
		left = slices.DeleteFunc(left, func(c *candidate) bool { return of[c] == of[best] })
		if len(left) > 0 && x.plans >= maxChoices {
			x.unproven = true
			break
		}
	}
	x.candidates = nil
	return false
}

// plan makes the plan for one choice of each kind.
func (x *byModel) plan(chosen map[int]*choice) {
	g := newGang(x.g.t, x.g.r.on(chosen), x.g.w, x.g.most, x.g.work)
	g.tries = x.g.tries
	c, none := g.place()
	if none == nil {
		x.candidates = append(x.candidates, c.orFaster(g)...)
		return
	}
	x.unproven = x.unproven || none.Unproven
	first := strings.Join(chosen[x.kinds[0].number].models, "\x00")
	if have, ok := x.refused[first]; !ok || none.Have > have {
		x.refused[first] = none.Have
	}
	if x.nearest == nil || none.Have > x.nearest.Have {
		x.nearest = none
	}
}

// unplaceable returns an error with how many members fit on each model of the first kind, and whether
// they would on several.
func (x *byModel) unplaceable() error {
	e := x.nearest
	e.Unproven = x.unproven
	if x.choosing {
		e.AtMost, e.Fit = true, nil
	}
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

// nameOf returns models in the form of node labels.
func nameOf(models []string) string {
	names := slices.Clone(models)
	for i, m := range names {
		if names[i] = nvtopo.ModelLabel(m); m == "" {
			names[i] = "an unknown model"
		}
	}
	return strings.Join(names, " and ")
}
