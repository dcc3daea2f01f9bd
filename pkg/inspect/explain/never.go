// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// mendedWouldDo finds the nodes that keep a gang waiting because they are cordoned, not ready or without an
// exporter. It reports whether the gang has room once they are mended.
func (s *scene) mendedWouldDo(e *Explanation, a *ask, fits string) bool {
	plan, err := s.mended().plan(a)
	if err != nil {
		return false
	}
	var away []judged
	for _, at := range slices.Sorted(maps.Keys(nodesOf(plan))) {
		j := judged{node: s.nodes[at]}
		for _, q := range a.shapes {
			for _, o := range s.nodes[at].obstacles(q, s.Now) {
				if o.kind == ofFault || o.Cause == Cordoned || o.Cause == NotReady {
					o.kind = ofFault
					j.obstacles = add(j.obstacles, o)
				}
			}
		}
		if len(j.obstacles) > 0 {
			away = append(away, j)
		}
	}
	if len(away) == 0 {
		return false
	}
	e.Cause = e.most(away, ofFault)
	e.Reason += "; without: " + fits
	return true
}

// mayDo reports whether hidden nodes could have room for the members that have none.
func mayDo(q *question, hidden []judged, room *fabric.UnplaceableError) bool {
	members := room.Have
	for i := range hidden {
		members += hidden[i].offers(q.resource()) / q.demand.Resources[0].Count
	}
	return len(hidden) > 0 && members >= room.Want
}

// neverPod explains a pod that no node of lacking takes even when it is empty, by the fewest of its wishes
// without which some node would.
func (s *scene) neverPod(q *question, lacking []judged, e *Explanation) Cause {
	if cause := e.most(offering(q, lacking), never); !ofCluster(cause) {
		return cause
	}
	ideal := s.ideal(nil)
	e.Evidence = nil
	wishes := deciding(append(ideal.wishesOf(q), amounts([]*question{q})...))
	fits := func(dropped []wish) bool { return ideal.relaxed(q, together(dropped)) != nil }
	if most := mostOffered(q, lacking); q.demand.HasGPUs() && most < q.demand.Resources[0].Count {
		if needed := fewest(exclusions(wishes), fits); excludes(needed) {
			return ideal.kept(q, needed, e)
		}
		if most > 0 {
			e.Lacks = []Cause{FewGPUs}
			e.Reason = fmt.Sprintf("the pod can never fit in this cluster: it asks %d %s on one node, and the largest that it may run on has %d for pods", q.demand.Resources[0].Count, q.resource(), most)
			e.Next = fmt.Sprintf("ask for at most %d on one node, or divide the job into members of a gang", most)
			return NeverFits
		}
		e.Lacks, e.Next = []Cause{FewGPUs}, "add nodes that have "+q.resource()+", or run their device plugin"
		e.Reason = "the pod can never fit in this cluster: no node that it may run on has " + q.resource()
		return NeverFits
	}
	needed := fewest(wishes, fits)
	if needed == nil {
		return e.most(offering(q, lacking), never)
	}
	if excludes(needed) {
		return ideal.kept(q, needed, e)
	}
	best := ideal.relaxed(q, together(needed))
	e.lack(needed)
	e.Reason = fmt.Sprintf("the pod can never fit in this cluster because of %s: without, %s would take it", because(needed), counted(best.Nodes, "node"))
	if best.Gets != nil {
		e.Evidence = append(e.Evidence, fmt.Sprintf("%s would give it %s when empty", best.Node, best.Gets))
	}
	e.Evidence = append(e.Evidence, ideal.amountsLeft(q, needed)...)
	e.Next = ideal.lesser(needed, []*question{q}, fits)
	return NeverFits
}

// kept explains a pod that empty nodes would take but for the one wish, which keeps it from them.
func (s *scene) kept(q *question, needed []wish, e *Explanation) Cause {
	best := s.relaxed(q, together(needed))
	e.Reason = fmt.Sprintf("only nodes would do that this keeps the pod from: %s; without, %s would take it when empty", named(needed), counted(best.Nodes, "node"))
	return needed[0].cause
}

// neverGang explains a gang that has no room even in the ideal cluster. It reports whether that is so: not
// where nodes have devices that no graph describes.
func (s *scene) neverGang(e *Explanation, a *ask) bool {
	stay := map[types.UID]bool{}
	for _, p := range a.gang.Members.Live {
		stay[p.UID] = placed(p)
	}
	ideal := s.ideal(stay)
	_, err := ideal.plan(a)
	var room *fabric.UnplaceableError
	if err == nil || !errors.As(err, &room) {
		return false
	}
	for _, q := range a.shapes {
		if hidden := ideal.hidden(q); mayDo(q, hidden, room) {
			e.Cause = e.most(hidden, ofFault)
			e.Reason += "; without: " + roomOf(room)
			return true
		}
	}
	wishes := deciding(slices.Concat(gangWishes(a), ideal.memberWishes(a), besideWishes(a)))
	needed := fewest(wishes, func(dropped []wish) bool { return ideal.fitsAsking(a, dropped) })
	if excludes(needed) {
		return false // of the member alone the same is said
	}
	e.Cause = NeverFits
	if needed == nil {
		if ideal.fewerWithout(e, a, wishes, room) {
			return true
		}
		e.Lacks = []Cause{FewGPUs}
		e.Reason = "the gang can never fit in this cluster; even if no other pod ran: " + roomOf(room)
		if total := ideal.offered(a); a.gpus() > total {
			e.Reason = fmt.Sprintf("the gang can never fit in this cluster: it asks %d %s, and the nodes that it may run on have %d", a.gpus(), a.resource(), total)
		}
		e.Next = anyOf(append(fewerMembers(room), "run smaller members", "add nodes"))
		return true
	}
	e.lack(needed)
	e.Reason = fmt.Sprintf("the gang can never fit in this cluster because of %s; even if no other pod ran: %s", because(needed), roomOf(room))
	for _, q := range a.shapes {
		for _, name := range resourcesOf(&ask{shapes: []*question{q}}) {
			if slices.Contains(e.Lacks, CauseOf(name)) {
				e.Evidence = append(e.Evidence, ideal.leftBeside(q, name)...)
			}
		}
	}
	e.Next = ideal.lesser(needed, a.shapes, func(less []wish) bool { return ideal.fitsAsking(a, less) }, fewerMembers(room)...)
	return true
}

// fewerWithout explains a gang that has no room for all members whatever it wishes, and room for more of them
// without some wishes. It reports whether that is so.
func (s *scene) fewerWithout(e *Explanation, a *ask, wishes []wish, room *fabric.UnplaceableError) bool {
	most := s.roomWithout(a, wishes)
	if most <= room.Have {
		return false
	}
	enough := func(dropped []wish) bool { return s.roomWithout(a, dropped) >= most }
	needed := fewest(wishes, enough)
	if excludes(needed) {
		return false
	}
	e.lack(needed)
	e.Lacks = append(e.Lacks, FewGPUs)
	e.Reason = fmt.Sprintf("the gang can never fit in this cluster because of %s, and also of its size; even if no other pod ran: room for %d of %s, and without for %d",
		because(needed), room.Have, counted(room.Want, "member"), most)
	less := "ask for less of these: " + named(needed)
	if values := s.lesserEach(needed, a.shapes, enough); len(values) > 0 {
		less = set(values) + annotate(a.shapes, values...)
	}
	e.Next = anyOf([]string{less + " and run " + counted(most, "member") + ", with which there is room when no other pod runs", "add nodes that have more"})
	return true
}

// roomWithout is for how many of the members there is room without some wishes.
func (s *scene) roomWithout(a *ask, dropped []wish) int {
	less, ok := s.without(a, dropped)
	if !ok {
		return 0
	}
	_, err := s.plan(less)
	var room *fabric.UnplaceableError
	switch {
	case err == nil:
		return len(a.gang.Members.Live)
	case errors.As(err, &room):
		return room.Have
	}
	return 0
}

// fewerMembers is the step to run as many members as there is room for, if there is some.
func fewerMembers(room *fabric.UnplaceableError) []string {
	if room.Have < 1 {
		return nil
	}
	return []string{"run " + counted(room.Have, "member")}
}

// deciding are the wishes that decide about nodes, with what keeps pods from nodes behind what they ask of
// nodes.
func deciding(wishes []wish) []wish {
	wishes = slices.DeleteFunc(wishes, func(w wish) bool { return w.cause == "" })
	slices.SortStableFunc(wishes, func(a, b wish) int {
		rank := func(w wish) int {
			if w.excludes() {
				return 1
			}
			return 0
		}
		return rank(a) - rank(b)
	})
	return wishes
}

// excludes reports whether all that is needed is that a pod may run on other nodes.
func excludes(needed []wish) bool { return len(needed) == 1 && needed[0].excludes() }

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

// ofCluster reports whether a cause that even empty nodes have is that the cluster has too little. The others
// are mended on a node, or by asking in another way.
func ofCluster(cause Cause) bool {
	return !slices.Contains([]Cause{
		WholeGPUsOnly, causeOf(placement.DegradedGPUs), causeOf(placement.GPUCountMismatch), causeOf(placement.UnknownDevices),
		causeOf(placement.UnknownNUMA), causeOf(placement.UnknownGPUMemory), causeOf(placement.UnknownGPUModel),
		causeOf(placement.KubeletRefuses), causeOf(placement.KubeletElsewhere), causeOf(placement.KubeletBusy),
	}, cause)
}

// fewest returns a smallest set of wishes without which there is room: one if one does, and else one from
// which none can be left out. It is nil if not even all do.
func fewest[T any](wishes []T, fits func(dropped []T) bool) []T {
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

// together is the wish that drops all of some.
func together(wishes []wish) wish {
	return wish{drop: func(p *v1.Pod) {
		for _, w := range wishes {
			if w.drop != nil {
				w.drop(p)
			}
		}
	}}
}

func named(wishes []wish) string {
	return strings.Join(namesOf(wishes), " and ")
}

// because names the wishes that are the cause, each of them.
func because(wishes []wish) string { return strings.Join(namesOf(wishes), ", and also of ") }

func namesOf(wishes []wish) (out []string) {
	for _, w := range wishes {
		out = append(out, w.name)
	}
	return out
}

// mostOffered is the greatest number of devices that one of the nodes has for pods.
func mostOffered(q *question, all []judged) (most int) {
	for i := range all {
		most = max(most, all[i].offers(q.resource()))
	}
	return most
}

// offered is how many devices the nodes have on which members with devices may run.
func (s *scene) offered(a *ask) (total int) {
	for _, n := range s.nodes {
		if slices.ContainsFunc(a.shapes, func(q *question) bool { return q.demand.HasGPUs() && q.shape.Eligible.Allows(n.object) }) {
			total += n.offers(a.resource())
		}
	}
	return total
}

// resource is that of the first member that asks for devices; empty if none does.
func (a *ask) resource() string {
	for _, q := range a.shapes {
		if q.demand.HasGPUs() {
			return q.resource()
		}
	}
	return ""
}

// amounts are what pods ask beside devices, as wishes.
func amounts(shapes []*question) (out []wish) {
	for _, name := range resourcesOf(&ask{shapes: shapes}) {
		most := int64(0)
		for _, q := range shapes {
			most = max(most, asks(q, name))
		}
		if most > 0 {
			out = append(out, wish{name: amount(name, most) + " of " + string(name), cause: CauseOf(name), drop: func(p *v1.Pod) { dropResource(p, name) }})
		}
	}
	return out
}

// amountsLeft says of how much of the amounts among the wishes the node has that has most.
func (s *scene) amountsLeft(q *question, wishes []wish) (out []string) {
	for _, name := range resourcesOf(&ask{shapes: []*question{q}}) {
		if !slices.ContainsFunc(wishes, func(w wish) bool { return w.cause == CauseOf(name) }) || asks(q, name) == 0 {
			continue
		}
		var most int64 = -1
		var best string
		for _, n := range s.nodes {
			if !q.shape.Eligible.Allows(n.object) || n.offers(q.resource()) == 0 && q.demand.HasGPUs() {
				continue
			}
			room := n.room()
			at := slices.IndexFunc(room.Lacks(q.demand.Request), func(l placement.Shortage) bool { return l.Resource == name })
			if at < 0 {
				continue // it has enough of this
			}
			value := max(0, room.Lacks(q.demand.Request)[at].Left)
			if value > most {
				most, best = value, n.object.Name
			}
		}
		if most >= 0 {
			out = append(out, fmt.Sprintf("%s asks %s of %s, and the most that a node has is %s (%s)", q.pod.Name, amount(name, asks(q, name)), name, amount(name, most), best))
		}
	}
	return out
}
