// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

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

// changeOfGang says which change of one annotation would let the gang in now, and how to make it. It is empty if
// none is known.
func (s *scene) changeOfGang(a *ask, cause Cause) string {
	few := cause == FewGPUs || cause == Fragmented
	fits := func(less []wish) bool { return s.fitsAsking(a, less) }
	for _, w := range slices.Concat(s.memberWishes(a), gangWishes(a)) {
		behind := w.cause == cause || few && w.cause != "" || w.key != "" && removals[cause] == podrequest.CanonicalKey(w.key)
		if !behind || !fits([]wish{w}) {
			continue
		}
		if less := s.lesserEach([]wish{w}, a.shapes, fits); len(less) > 0 {
			return roomNow(a.shapes, less[0])
		}
	}
	return ""
}

// neverBesides adds to what is said of a gang that lacks members that those which there are have no room even in
// the ideal cluster, if that is so.
func (s *scene) neverBesides(e *Explanation, g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) {
	a, err := s.askOf(g, group)
	never := &Explanation{}
	if err != nil || len(a.shapes) == 0 || !s.neverGang(never, a) || never.Cause != NeverFits {
		return
	}
	e.Lacks, e.Evidence = never.Lacks, append(e.Evidence, never.Evidence...)
	e.Reason += "; and " + never.Reason
	e.Next = nextSteps[e.Cause] + "; and " + never.Next
}

// unreadableGang says why a gang cannot be read, and how to say its size where nobody does.
func (e *Explanation) unreadableGang(g *gangrequest.Gang) {
	e.Cause, e.Reason = Unreadable, g.Err.Error()
	sized := func(p *v1.Pod) bool { _, ok := p.Annotations[gangrequest.GangSizeKey]; return ok }
	switch live := g.Members.Live; {
	case errors.Is(g.Err, gangrequest.ErrNoGroup):
		e.Next = fmt.Sprintf("create %s, whose spec.minMember says how many members start together, or correct the label %s of the pods", g.Key, schedulingv1alpha1.PodGroupLabel)
	case g.Key.Source == gangrequest.SourceAnnotation && len(live) > 0 && !slices.ContainsFunc(live, sized):
		e.Reason = fmt.Sprintf("no %s is given (members there: %d): %v", gangrequest.GangSizeKey, len(live), g.Err)
		e.Next = "set " + gangrequest.GangSizeKey + " to how many members start together" + command(live, annotation{gangrequest.GangSizeKey, strconv.Itoa(len(live))})
	}
}

// sizeOf says of a PodGroup without a size how to give it one.
func (e *Explanation) sizeOf(group *schedulingv1alpha1.PodGroup, g *gangrequest.Gang) {
	if group != nil && group.Spec.MinMember == 0 {
		e.Evidence = append(e.Evidence, fmt.Sprintf("%s: spec.minMember is missing, and taken to be 1; to set it: kubectl -n %s patch podgroups.scheduling.x-k8s.io %s --type merge -p '{\"spec\":{\"minMember\":%d}}'",
			g.Key, group.Namespace, group.Name, len(g.Members.Live)))
	}
}
