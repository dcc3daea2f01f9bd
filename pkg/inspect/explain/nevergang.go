// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// mendedWouldDo finds the nodes that keep a gang waiting because they are cordoned, not ready or without an
// exporter. It reports whether the gang has room once they are mended.
func (a *ask) mendedWouldDo(e *Explanation, fits string) bool {
	plan, err := a.in(a.mended()).plan()
	if err != nil {
		return false
	}
	var away []judged
	for _, at := range slices.Sorted(maps.Keys(nodesOf(plan))) {
		j := judged{node: a.nodes[at]}
		for _, q := range a.shapes {
			for _, o := range a.nodes[at].obstacles(q, a.now) {
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

// sickGang explains a gang that has room in the ideal cluster, and none in the same with the GPUs that are unhealthy
// now. It reports whether that is so.
func (a *ask) sickGang(e *Explanation) bool {
	if !slices.ContainsFunc(a.nodes, func(n *node) bool { return n.healed() != n }) {
		return false
	}
	stay := a.stay()
	_, err := a.in(a.bare(stay)).plan()
	var room *fabric.UnplaceableError
	if !errors.As(err, &room) {
		return false
	}
	plan, err := a.in(a.ideal(stay)).plan()
	if err != nil {
		return false
	}
	var sick []judged
	for _, at := range slices.Sorted(maps.Keys(nodesOf(plan))) {
		if n := a.nodes[at]; n.healed() != n {
			sick = append(sick, judged{node: n, obstacles: []Obstacle{n.unhealthy(a.withGPUs())}})
		}
	}
	if len(sick) == 0 {
		return false
	}
	e.Cause = e.most(sick, ofFault)
	e.Reason += "; without: " + roomOf(room)
	return true
}

// withGPUs is the first member that asks for devices; the first if none does.
func (a *ask) withGPUs() *question {
	return a.shapes[max(0, slices.IndexFunc(a.shapes, func(q *question) bool { return q.demand.HasGPUs() }))]
}

// stay are the members that have a node.
func (a *ask) stay() map[types.UID]bool {
	stay := map[types.UID]bool{}
	for _, p := range a.gang.Members.Live {
		stay[p.UID] = placed(p)
	}
	return stay
}

// mayDo reports whether hidden nodes could have room for the members that have none.
func mayDo(q *question, hidden []judged, room *fabric.UnplaceableError) bool {
	members := room.Have
	for i := range hidden {
		members += hidden[i].offers(q.resource()) / q.demand.Resources[0].Count
	}
	return len(hidden) > 0 && members >= room.Want
}

// neverGang explains a gang that has no room even in the ideal cluster. It reports whether that is so: not
// where nodes have devices that no graph describes, and not where the planner has not tried all ways.
func (a *ask) neverGang(e *Explanation) bool {
	ideal := a.in(a.ideal(a.stay()))
	_, err := ideal.plan()
	var room *fabric.UnplaceableError
	if err == nil || !errors.As(err, &room) || room.Unproven {
		return false
	}
	for _, q := range a.shapes {
		if hidden := ideal.forPod(q).hidden(); mayDo(q, hidden, room) {
			e.Cause = e.most(hidden, ofFault)
			e.Reason += "; without: " + roomOf(room)
			return true
		}
	}
	wishes := deciding(slices.Concat(gangWishes(a), ideal.memberWishes(), besideWishes(a)))
	needed := fewest(wishes, ideal.fitsAsking)
	if excludes(needed) {
		return false // of the member alone the same is said
	}
	e.Cause = NeverFits
	if needed == nil {
		if ideal.fewerWithout(e, wishes, room) {
			return true
		}
		e.Lacks = []Cause{FewGPUs}
		e.Reason = "the gang can never fit in this cluster; even if no other pod ran: " + roomOf(room)
		if total, asks := ideal.offered(), a.gpus(a.resource()); asks > total {
			e.Reason = fmt.Sprintf("the gang can never fit in this cluster: it asks %d %s, and the nodes that it may run on have %d", asks, a.resource(), total)
		}
		e.Next = anyOf(append(a.fewerMembers(room), "run smaller members", "add nodes"))
		return true
	}
	e.lack(needed)
	e.Reason = fmt.Sprintf("the gang can never fit in this cluster because of %s; even if no other pod ran: %s", a.because(needed), roomOf(room))
	for _, name := range resourcesOf(a.shapes) {
		var left []string
		for _, q := range a.shapes {
			if len(left) < maxNamed && slices.ContainsFunc(needed, func(w wish) bool { return w.cause == CauseOf(name) && w.isOf(q) }) {
				left = append(left, ideal.forPod(q).leftBeside(name)...)
			}
		}
		e.Evidence = append(e.Evidence, left[:min(len(left), maxNamed)]...)
	}
	e.Next = ideal.lesser(needed, a.shapes, ideal.fitsAsking, a.fewerMembers(room)...)
	return true
}

// fewerWithout explains a gang that has no room for all members whatever it wishes, and room for more of them
// without some wishes. It reports whether that is so.
func (a *ask) fewerWithout(e *Explanation, wishes []wish, room *fabric.UnplaceableError) bool {
	most, run := a.roomWithout(wishes)
	if room.AtMost || most <= room.Have {
		return false
	}
	enough := func(dropped []wish) bool {
		have, _ := a.roomWithout(dropped)
		return have >= most
	}
	needed := fewest(wishes, enough)
	if excludes(needed) {
		return false
	}
	e.lack(needed)
	e.Lacks = append(e.Lacks, FewGPUs)
	e.Reason = fmt.Sprintf("the gang can never fit in this cluster because of %s, and also of its size; even if no other pod ran: room for %d of %s, and without for %d",
		a.because(needed), room.Have, counted(room.Want, "member"), most)
	less := "ask for less of these: " + named(needed)
	if values := a.lesserEach(needed, a.shapes, enough); len(values) > 0 {
		less = set(values) + annotate(a.shapes, values...)
	}
	then := " and " + a.start(most, run) + ", with which there is room"
	if !a.gang.Complete() {
		then = ", with which there is room for " + run
	}
	e.Next = anyOf([]string{less + then + " when no other pod runs", "add nodes that have more"})
	return true
}

// roomWithout is for how many of the members there is room without some wishes, as a number and in words. It
// is 0 if that is not known.
func (a *ask) roomWithout(dropped []wish) (int, string) {
	less, ok := a.without(dropped)
	if !ok {
		return 0, ""
	}
	_, err := less.plan()
	var room *fabric.UnplaceableError
	switch {
	case err == nil:
		all := len(a.gang.Members.Live)
		return all, counted(all, "member")
	case errors.As(err, &room) && !room.AtMost:
		return room.Have, less.fit(room)
	}
	return 0, ""
}

// fewerMembers is the step to start as many members as there is room for, if there is some. Of a gang that lacks
// members it is not known for how many there is.
func (a *ask) fewerMembers(room *fabric.UnplaceableError) []string {
	if room.Have < 1 || room.AtMost || !a.gang.Complete() {
		return nil
	}
	return []string{a.start(room.Have, a.fit(room))}
}

// fit says how many members there is room for, and which where they ask for different things.
func (a *ask) fit(room *fabric.UnplaceableError) string {
	text, left := counted(room.Have, "member"), room.Have
	var which []string
	for i, n := range room.Fit {
		if n == room.Have {
			return text + " like " + a.shapes[i].pod.Name
		}
		if n > 0 {
			which, left = append(which, fmt.Sprintf("%d like %s", n, a.shapes[i].pod.Name)), left-n
		}
	}
	if len(which) == 0 {
		return text
	}
	if left > 0 {
		which = append(which, fmt.Sprintf("%d on nodes already", left))
	}
	return text + " (" + strings.Join(which, ", ") + ")"
}

// start is the step to start so many members instead of all.
func (a *ask) start(members int, run string) string {
	if a.lacked > 0 {
		return fmt.Sprintf("lower the number that starts together to %d", members)
	}
	return "run " + run
}

// offered is how many devices the nodes have on which members with devices may run.
func (a *ask) offered() (total int) {
	for _, n := range a.nodes {
		if slices.ContainsFunc(a.shapes, func(q *question) bool { return q.demand.HasGPUs() && q.shape.Eligible.Allows(n.object) }) {
			total += n.offers(a.resource())
		}
	}
	return total
}
