// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
			fix: annotation{key: gangrequest.MixedModelsKey, value: "true"}, gang: func(w *gangrequest.Wishes) { w.MixedModels = true },
		}},
		{w.MaxPerDomain > 0, wish{name: gangrequest.MaxPerDomainKey + fmt.Sprintf(": %d", w.MaxPerDomain), cause: NoDomain, gang: func(w *gangrequest.Wishes) { w.MaxPerDomain = 0 }}},
	} {
		if d.set {
			out = append(out, d.wish)
		}
	}
	return out
}

// memberWishes are those of the members.
func (a *ask) memberWishes() []wish {
	return a.each(func(q *question) []wish { return a.forPod(q).wishesOf() }, " of the members")
}

// each are wishes of the members, each once, with the members that have it; all is said where all have. Of
// more than maxWishes those for several values of one annotation, or amounts of one resource, are one, as
// each costs a plan.
func (a *ask) each(of func(*question) []wish, all string) []wish {
	out := a.collect(of)
	if len(out) > maxWishes {
		out = a.collect(func(q *question) []wish {
			wishes := of(q)
			for i := range wishes {
				w := &wishes[i]
				w.name, w.value = cmp.Or(w.key, string(w.resource), w.name), ""
			}
			return wishes
		})
	}
	for i := range out {
		w := &out[i]
		if len(w.by) == len(a.shapes) {
			w.by, w.name = nil, w.name+all
			continue
		}
		for member, shape := range a.of {
			if shape >= 0 && slices.Contains(w.by, a.shapes[shape]) {
				w.who = append(w.who, a.gang.Members.Live[member].Name)
			}
		}
		w.name += " of " + nodes(w.who)
	}
	return out
}

// collect are wishes of the members, each once, with the members that have it.
func (a *ask) collect(of func(*question) []wish) (out []wish) {
	for _, q := range a.shapes {
		for _, w := range of(q) {
			at := slices.IndexFunc(out, func(o wish) bool { return o.name == w.name && o.value == w.value })
			if at < 0 {
				at, out = len(out), append(out, w)
			}
			out[at].by = append(out[at].by, q)
		}
	}
	return out
}

// because names the wishes that are the cause, each of them, and what the other members ask instead.
func (a *ask) because(needed []wish) string {
	texts := namesOf(needed)
	for i, w := range needed {
		same := func(o wish) bool { return o.key == w.key }
		if w.key == "" || slices.ContainsFunc(needed[i+1:], same) {
			continue
		}
		if others := a.othersAsk(w.key, slices.DeleteFunc(slices.Clone(needed), func(o wish) bool { return !same(o) })); others != "" {
			texts[i] += " (the other members ask " + others + ")"
		}
	}
	return strings.Join(texts, ", and also of ")
}

// othersAsk are the values of an annotation of the members that have none of some wishes; empty if they ask
// none.
func (a *ask) othersAsk(key string, wishes []wish) string {
	var values []string
	none := false
	for _, q := range a.shapes {
		if slices.ContainsFunc(wishes, func(w wish) bool { return w.isOf(q) }) {
			continue
		}
		value, has := valueOf(q.pod, podrequest.CanonicalKey(key))
		if none = none || !has; has && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	if more := len(values) - maxNamed; more > 0 {
		values = append(values[:maxNamed], counted(more, "other value"))
	}
	if none && len(values) > 0 {
		values = append(values, "none")
	}
	return strings.Join(values, " or ")
}

// valueOf is a pod's value of an annotation, under the first of its names that the pod has, its own before
// others.
func valueOf(p *v1.Pod, key string) (value string, has bool) {
	for _, k := range append([]string{key}, podrequest.InputKeys()...) {
		if v, ok := p.Annotations[k]; ok && podrequest.CanonicalKey(k) == key {
			return cmp.Or(asRead(k, v), `""`), true
		}
	}
	return "", false
}

// besideWishes are what the members ask beside devices, as wishes.
func besideWishes(a *ask) []wish {
	out := a.each(amounts, " for each member")
	for _, b := range besides(a) {
		if b.resource == "" {
			at := slices.IndexFunc(a.shapes, func(q *question) bool { return b.of(q) != "" })
			b.name = b.of(a.shapes[at])
			out = append(out, b)
		}
	}
	return out
}

// changeOfGang says which change of one annotation would let the gang in now, and how to make it. It is
// empty if none is known.
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

// relaxedGang is what the gang would get without one of its wishes, or of its members': of the first maxNamed
// without which it has room.
func (a *ask) relaxedGang() (out []Relaxation) {
	for _, w := range append(gangWishes(a), a.memberWishes()...) {
		less, ok := a.without([]wish{w})
		if !ok {
			continue
		}
		if plan, err := less.plan(); err == nil {
			out = append(out, Relaxation{Wish: w.name, Nodes: len(nodesOf(plan)), Level: plan.Level})
		}
		if len(out) == maxNamed {
			break
		}
	}
	return out
}
