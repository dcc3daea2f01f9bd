// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
)

// neverPod explains a pod that no node of lacking takes even when it is empty, by the fewest of its wishes
// without which some node would.
func (x *podAsk) neverPod(lacking []judged, e *Explanation) Cause {
	if cause := e.most(offering(x.q, lacking), never); !ofCluster(cause) {
		return cause
	}
	ideal := x.ideal(nil).forPod(x.q)
	e.Evidence = nil
	wishes := deciding(append(ideal.wishesOf(), amounts(x.q)...))
	fits := func(dropped []wish) bool { return ideal.relaxed(together(dropped)) != nil }
	if most := ideal.mostOffered(lacking); x.q.demand.HasGPUs() && most < x.q.demand.Resources[0].Count {
		if needed := fewest(exclusions(wishes), fits); excludes(needed) {
			return ideal.kept(needed, e)
		}
		if most > 0 {
			e.Lacks = []Cause{FewGPUs}
			e.Reason = fmt.Sprintf("the pod can never fit in this cluster: it asks %d %s on one node, and the largest that it may run on has %d for pods", x.q.demand.Resources[0].Count, x.q.resource(), most)
			e.Next = fmt.Sprintf("ask for at most %d on one node, or divide the job into members of a gang", most)
			return NeverFits
		}
		e.Lacks, e.Next = []Cause{FewGPUs}, "add nodes that have "+x.q.resource()+", or run their device plugin"
		e.Reason = "the pod can never fit in this cluster: no node that it may run on has " + x.q.resource()
		return NeverFits
	}
	needed := fewest(wishes, fits)
	if needed == nil {
		return e.most(offering(x.q, lacking), never)
	}
	if excludes(needed) {
		return ideal.kept(needed, e)
	}
	best := ideal.relaxed(together(needed))
	e.lack(needed)
	e.Reason = fmt.Sprintf("the pod can never fit in this cluster because of %s: without, %s would take it", strings.Join(namesOf(needed), ", and also of "), counted(best.Nodes, "node"))
	if best.Gets != nil {
		e.Evidence = append(e.Evidence, fmt.Sprintf("%s would give it %s when empty", best.Node, best.Gets))
	}
	e.Evidence = append(e.Evidence, ideal.amountsLeft(needed)...)
	e.Next = ideal.lesser(needed, []*question{x.q}, fits)
	return NeverFits
}

// kept explains a pod that empty nodes would take but for the one wish, which keeps it from them.
func (x *podAsk) kept(needed []wish, e *Explanation) Cause {
	best := x.relaxed(together(needed))
	e.Reason = fmt.Sprintf("only nodes would do that this keeps the pod from: %s; without, %s would take it when empty", named(needed), counted(best.Nodes, "node"))
	return needed[0].cause
}

// deciding are the wishes that decide about nodes, with what keeps pods from nodes behind what they ask of
// nodes.
func deciding(wishes []wish) []wish {
	wishes = slices.DeleteFunc(wishes, func(w wish) bool { return w.cause == "" })
	last := exclusions(wishes)
	return append(slices.DeleteFunc(wishes, func(w wish) bool { return w.excludes() }), last...)
}

// excludes reports whether all that is needed is that a pod may run on other nodes.
func excludes(needed []wish) bool {
	if len(needed) == 1 {
		return needed[0].excludes()
	}
	return len(needed) > 0 && !slices.ContainsFunc(needed, func(w wish) bool { return w.cause != NotSelected })
}

// excludes reports whether the wish keeps the pod from nodes.
func (w *wish) excludes() bool { return w.cause == NotSelected || w.cause == Tainted }

// exclusions are the wishes that keep the pod from nodes.
func exclusions(wishes []wish) (out []wish) {
	for _, w := range wishes {
		if w.excludes() {
			out = append(out, w)
		}
	}
	return out
}

// lack notes the causes of some wishes.
func (e *Explanation) lack(needed []wish) {
	for _, w := range needed {
		if !slices.Contains(e.Lacks, w.cause) {
			e.Lacks = append(e.Lacks, w.cause)
		}
	}
}

// fewest returns a smallest set of wishes without which there is room: one if one does, and else one from
// which none can be left out. It is nil if not even all do.
func fewest(wishes []wish, fits func(dropped []wish) bool) []wish {
	for i := range wishes {
		if one := wishes[i : i+1 : i+1]; fits(one) {
			return one
		}
	}
	if len(wishes) < 2 || !fits(wishes) {
		return nil
	}
	wishes = slices.Clone(wishes)
	for i := 0; i < len(wishes); {
		if fewer := slices.Delete(slices.Clone(wishes), i, i+1); fits(fewer) {
			wishes = fewer
		} else {
			i++
		}
	}
	return wishes
}

// mostOffered is the greatest number of devices that one of some nodes has for pods.
func (x *podAsk) mostOffered(all []judged) (most int) {
	for i := range all {
		most = max(most, x.byName[all[i].object.Name].offers(x.q.resource()))
	}
	return most
}
