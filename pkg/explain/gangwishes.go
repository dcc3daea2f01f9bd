// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// gangWishes are the gang's own.
func gangWishes(a *ask) (out []wish) {
	w := &a.wishes
	for _, d := range []struct {
		set bool
		wish
	}{
		{w.Required != "", wish{name: gangrequest.RequiredKey + ": " + w.Required, cause: NoDomain, gang: func(w *gangrequest.Wishes) { w.Required = "" }}},
		{w.SegmentRequired, wish{name: gangrequest.RequiredSegmentKey + ": " + w.SegmentLevel, cause: NoDomain, gang: func(w *gangrequest.Wishes) { w.SegmentRequired = false }}},
		{!w.MixedModels, wish{
			name: "one GPU model for all members (no " + gangrequest.MixedModelsKey + ")", cause: causeOf(placement.FewOneModel),
			fix: annotation{gangrequest.MixedModelsKey, "true"}, gang: func(w *gangrequest.Wishes) { w.MixedModels = true },
		}},
		{w.MaxPerDomain > 0, wish{name: gangrequest.MaxPerDomainKey + fmt.Sprintf(": %d", w.MaxPerDomain), cause: NoDomain, gang: func(w *gangrequest.Wishes) { w.MaxPerDomain = 0 }}},
	} {
		if d.set {
			out = append(out, d.wish)
		}
	}
	return out
}

// memberWishes are those of the members, each once.
func (s *scene) memberWishes(a *ask) (out []wish) {
	for _, q := range a.shapes {
		for _, w := range s.wishesOf(q) {
			if !slices.ContainsFunc(out, func(o wish) bool { return o.name == w.name+ofMembers }) {
				w.name += ofMembers
				out = append(out, w)
			}
		}
	}
	return out
}

const ofMembers = " of the members"

// besideWishes are what the members ask beside devices, as wishes.
func besideWishes(a *ask) []wish {
	out := amounts(a.shapes)
	for i := range out {
		out[i].name += " for each member"
	}
	for _, b := range besides(a) {
		if b.resource == "" {
			at := slices.IndexFunc(a.shapes, func(q *question) bool { return b.of(q) != "" })
			out = append(out, wish{name: b.of(a.shapes[at]), cause: b.cause, drop: b.drop})
		}
	}
	return out
}

// without is the gang without some wishes; false if what is left cannot be read.
func (s *scene) without(a *ask, dropped []wish) (*ask, bool) {
	less := *a
	less.shapes, less.asks = nil, make([]*placement.Demand, len(less.of))
	for _, q := range a.shapes {
		pod := q.pod.DeepCopy()
		together(dropped).drop(pod)
		relaxed, err := s.question(pod)
		if err != nil {
			return nil, false
		}
		less.shapes = append(less.shapes, relaxed)
	}
	for i, shape := range less.of {
		if shape >= 0 {
			less.asks[i] = less.shapes[shape].demand
		}
	}
	for _, w := range dropped {
		if w.gang != nil {
			w.gang(&less.wishes)
		}
	}
	return &less, true
}

// fitsAsking reports whether the gang would be placed without some wishes.
func (s *scene) fitsAsking(a *ask, dropped []wish) bool {
	less, ok := s.without(a, dropped)
	if !ok {
		return false
	}
	_, err := s.plan(less)
	return err == nil
}
