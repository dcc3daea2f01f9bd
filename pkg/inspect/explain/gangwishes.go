// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
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
func (a *ask) memberWishes() (out []wish) {
	for _, q := range a.shapes {
		for _, w := range a.forPod(q).wishesOf() {
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
			b.name = b.of(a.shapes[at])
			out = append(out, b)
		}
	}
	return out
}

// changeOfGang says which change of one annotation would let the gang in now, and how to make it. It is empty if
// none is known.
func (a *ask) changeOfGang(cause Cause) string {
	few := cause == FewGPUs || cause == Fragmented
	for _, w := range slices.Concat(a.memberWishes(), gangWishes(a)) {
		behind := w.cause == cause || few && w.cause != "" || w.key != "" && removals[cause] == podrequest.CanonicalKey(w.key)
		if !behind || !a.fitsAsking([]wish{w}) {
			continue
		}
		if less := a.lesserEach([]wish{w}, a.shapes, a.fitsAsking); len(less) > 0 {
			return roomNow(a.shapes, less[0])
		}
	}
	return ""
}

// relaxedGang is what the gang would get without one of its wishes, or of its members'.
func (a *ask) relaxedGang() (out []Relaxation) {
	for _, w := range append(gangWishes(a), a.memberWishes()...) {
		less, ok := a.without([]wish{w})
		if !ok {
			continue
		}
		if plan, err := less.plan(); err == nil {
			out = append(out, Relaxation{Wish: w.name, Nodes: len(nodesOf(plan)), Level: plan.Level})
		}
	}
	return out
}
