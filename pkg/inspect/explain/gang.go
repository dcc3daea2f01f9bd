// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// readGang reads a gang's group and pods. The group is nil if there is none.
func (w *World) readGang(key gangrequest.Key) (g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) {
	if key.Source == gangrequest.SourcePodGroup {
		group = find(w.PodGroups, key.Namespace, key.Name)
	}
	var pods []*v1.Pod
	for i := range w.Pods {
		if k, ok := gangrequest.KeyOf(&w.Pods[i]); ok && k == key {
			pods = append(pods, &w.Pods[i])
		}
	}
	return gangrequest.Read(key, group, pods), group
}

// saidNow is what the scheduler wrote on a pod, as far as it is true of the gang's members now.
func (w *World) saidNow(p *v1.Pod) string {
	text := saidBy(p)
	if key, member := gangrequest.KeyOf(p); member && text != "" {
		g, _ := w.readGang(key)
		return g.Said(p, text)
	}
	return text
}

// summaryOf says what a gang was given and what it was chosen from; empty if nobody wrote that.
func summaryOf(g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) string {
	p := gangrequest.PlacementOf(group, g)
	if p == nil {
		return ""
	}
	return p.Summary()
}

func describeGang(g *gangrequest.Gang) *Gang {
	out := &Gang{Name: g.Key.String(), Minimum: g.Minimum, Have: g.Members.Count(), Required: g.Wishes.Required}
	if g.Err != nil && g.Size == 0 && (g.Key.Source != gangrequest.SourcePodGroup || errors.Is(g.Err, gangrequest.ErrNoGroup)) {
		out.Minimum = 0
	}
	for _, p := range g.Members.Live {
		if placed(p) {
			out.Placed++
		}
	}
	return out
}

// explainGang explains a gang that waits, as a whole.
func (s *scene) explainGang(e *Explanation, key gangrequest.Key) {
	g, group := s.readGang(key)
	e.Gang = describeGang(g)
	defer func() { e.Next = cmp.Or(e.Next, nextSteps[e.Cause]) }()
	waiting := slices.DeleteFunc(slices.Clone(g.Members.Live), placed)
	switch {
	case g.Err != nil:
		e.unreadableGang(g)
		return
	case !g.Complete():
		e.Cause = GangIncomplete
		e.Reason = fmt.Sprintf("%s has %d of the %s that start together", key, g.Members.Count(), counted(g.Minimum, "member"))
		e.Evidence = append(e.Evidence, missingRanks(g)...)
		s.neverBesides(e, g, group)
		return
	case len(waiting) == 0:
		e.State, e.Reason = Bound, fmt.Sprintf("all %s of %s have a node", counted(len(g.Members.Live), "member"), key)
		if summary := summaryOf(g, group); summary != "" {
			e.Evidence = append(e.Evidence, summary)
		}
		return
	}
	e.sizeOf(group, g)
	e.Scheduler = cmp.Or(e.Scheduler, g.Said(waiting[0], saidBy(waiting[0])))
	for _, p := range waiting {
		if s.explainBefore(e, p) {
			e.Evidence = append(e.Evidence, "member "+p.Name)
			return
		}
	}
	a, err := s.askOf(g, group)
	if err != nil {
		e.Cause, e.Reason = Unreadable, err.Error()
		return
	}
	noLeader := s.noLeader(waiting[0])
	a.explainPlan(e, noLeader)
	e.alsoNoLeader(noLeader)
}

// missingRanks names the ranks that no member has.
func missingRanks(g *gangrequest.Gang) (out []string) {
	var missing []string
	for rank := 0; rank < g.Minimum && len(missing) <= maxNamed; rank++ {
		if !slices.Contains(g.Members.Ranks, rank) {
			missing = append(missing, strconv.Itoa(rank))
		}
	}
	if len(missing) > maxNamed {
		missing[maxNamed] = "and more"
	}
	if len(g.Members.Live) > 0 && len(missing) > 0 {
		out = append(out, "no pod has the rank "+strings.Join(missing, ", "))
	}
	var names []string
	for _, p := range g.Members.Live {
		names = append(names, p.Name)
	}
	if len(names) > 0 {
		out = append(out, "there are "+nodes(names))
	}
	return out
}

// explainPlan says what keeps the planner from placing a gang; noLeader says why no scheduler leads, if none
// does.
func (a *ask) explainPlan(e *Explanation, noLeader leaderless) {
	plan, err := a.plan()
	if err == nil {
		e.Cause, e.Reason, e.Next = WaitsForItsTurn, "the gang has a place now, in one "+plan.Level, noLeader.turn
		e.Gang.Level = plan.Level
		if noLeader.why != "" {
			e.Evidence = append(e.Evidence, e.Reason)
			e.Cause, e.Reason, e.Next = NoScheduler, noLeader.why, noLeader.next
		} else if e.Scheduler != "" {
			e.Cause, e.Reason, e.Next = OtherPlugin, "the scheduler refuses the gang for a reason that is not about GPUs or has passed: "+e.Scheduler, ""
		}
		return
	}
	var room *fabric.UnplaceableError
	if !errors.As(err, &room) {
		e.Cause, e.Reason = Unreadable, err.Error()
		var unknown *gangrequest.UnknownLevelError
		if errors.As(err, &unknown) {
			e.Next = clustertopology.MissingLevel(a.tree, unknown.Level)
		}
		return
	}
	e.Gang.Room = room.Have
	member, all := a.refused()
	e.Refusals, e.Candidates = refusalsOf(all), member.candidates(all)
	e.Relaxations = a.relaxedGang()
	if a.whyNoPlace(e, room, member, all); e.Next == "" {
		e.Next = e.step(a.shapes) + a.changeOfGang(e.Cause)
	}
	for _, text := range e.nearest() {
		e.Evidence = append(e.Evidence, "for one member more: "+text)
	}
}

// refused is the member by which nodes are judged, and how: the first with GPUs that no node takes, or else
// the first with GPUs, or else the first. It looks at maxExplained.
func (a *ask) refused() (member *podAsk, all []judged) {
	shapes := slices.DeleteFunc(slices.Clone(a.shapes), func(q *question) bool { return !q.demand.HasGPUs() })
	if len(shapes) == 0 {
		shapes = a.shapes[:1]
	}
	for _, q := range shapes[:min(len(shapes), maxExplained)] {
		x := a.forPod(q)
		on := x.judge()
		none := !slices.ContainsFunc(on, func(j judged) bool { return len(j.obstacles) == 0 })
		if none || member == nil {
			member, all = x, on
		}
		if none {
			break
		}
	}
	return member, all
}

// whyNoPlace is the dominant reason of a gang that has no room as a whole; all is how nodes are judged by a
// member.
func (a *ask) whyNoPlace(e *Explanation, room *fabric.UnplaceableError, member *podAsk, all []judged) {
	fits := roomOf(room)
	if a.neverGang(e) || a.sickGang(e) || a.mendedWouldDo(e, fits) {
		return
	}
	if a.wishes.Required != "" {
		anywhere := *a
		anywhere.wishes.Required = ""
		if _, err := anywhere.plan(); err == nil {
			e.Cause = NoDomain
			e.Reason = fmt.Sprintf("no %s has room for the gang: at most %d of %s", room.Level, room.Have, counted(room.Want, "member"))
			if room.Domain != "" {
				e.Reason += ", in " + room.Domain
			}
			e.Evidence = append(e.Evidence, "without "+gangrequest.RequiredKey+" it would be placed")
			return
		}
	}
	if a.memberAlone(e, fits, member, all) || a.crowded(e, fits) {
		return
	}
	e.Cause, e.Reason = FewGPUs, fits
	if room.Detail != "" {
		e.Reason += ", " + room.Detail
	}
	if asks := a.gpus(member.q.resource()); asks > 0 {
		a.countFree(e, fits, asks, member, all)
	}
}

// countFree says how many GPUs are free for a gang that asks for so many, and where.
func (a *ask) countFree(e *Explanation, fits string, asks int, member *podAsk, all []judged) {
	resource := member.q.resource()
	eligible := slices.DeleteFunc(slices.Clone(all), func(j judged) bool { return j.first(ofWish) != nil || j.first(ofFault) != nil || j.first(never) != nil })
	total, with := member.freeOn(eligible)
	if len(with) > 0 {
		e.Evidence = append(e.Evidence, "free: "+nodes(with))
	}
	if total >= asks {
		each, count := "", member.q.demand.Resources[0].Count
		if !slices.ContainsFunc(a.shapes, func(q *question) bool { return q.demand.HasGPUs() && q.demand.Resources[0].Count != count }) {
			each = fmt.Sprintf(", %d on one node for each member", count)
		}
		e.Cause = Fragmented
		e.Reason = fmt.Sprintf("%d %s are free on %s and the gang asks %d in all%s: %s", total, resource, counted(len(with), "node"), asks, each, fits)
		return
	}
	e.Reason = fmt.Sprintf("the gang asks %d %s, and %d are free on the nodes that it may run on: %s", asks, resource, total, fits)
}

// memberAlone finds a member that no node takes, even if it were the only one, for another reason than too
// few devices. It looks at maxExplained, and knows how nodes are judged by one. It reports whether there is
// one.
func (a *ask) memberAlone(e *Explanation, fits string, known *podAsk, first []judged) bool {
	for _, q := range a.shapes[:min(len(a.shapes), maxExplained)] {
		member, all, single := a.forPod(q), first, &Explanation{Candidates: e.Candidates}
		if q != known.q {
			all = member.judge()
			single = &Explanation{Candidates: member.candidates(all)}
		}
		cause := member.dominant(all, single)
		if cause == WaitsForItsTurn || cause == FewGPUs || cause == Fragmented {
			continue
		}
		e.Cause, e.Reason, e.Lacks, e.Next = cause, single.Reason+"; "+fits, single.Lacks, single.Next
		if len(a.shapes) > 1 {
			e.Reason = "member " + q.pod.Name + ": " + e.Reason
		}
		if q != known.q {
			e.Refusals, e.Candidates = refusalsOf(all), single.Candidates
		}
		e.Evidence = append(e.Evidence, single.Evidence...)
		return true
	}
	return false
}

// neverBesides adds to the explanation of a gang that lacks members that it has no room even in the ideal
// cluster, if that is so. Where the members that exist differ, it is about these alone.
func (c *cluster) neverBesides(e *Explanation, g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) {
	a, err := c.askOf(g, group)
	if err != nil || len(a.shapes) == 0 {
		return
	}
	next, of := "create the missing members like those that are there; and ", ""
	if a.alike() {
		a = a.completed()
	} else {
		of = fmt.Sprintf("for the %d that are there: ", g.Members.Count())
		next = nextSteps[e.Cause] + "; and " + of
	}
	never := &Explanation{}
	if !a.neverGang(never) || never.Cause != NeverFits {
		return
	}
	e.Lacks, e.Evidence = never.Lacks, append(e.Evidence, never.Evidence...)
	e.Reason += "; and " + of + never.Reason
	e.Next = next + never.Next
}

// unreadableGang explains a gang whose annotations cannot be read, and gives the command that sets a
// missing size.
func (e *Explanation) unreadableGang(g *gangrequest.Gang) {
	e.Cause, e.Reason = Unreadable, g.Err.Error()
	sized := func(p *v1.Pod) bool { _, ok := p.Annotations[gangrequest.GangSizeKey]; return ok }
	switch live := g.Members.Live; {
	case errors.Is(g.Err, gangrequest.ErrNoGroup):
		e.Next = fmt.Sprintf("create %s, whose spec.minMember says how many members start together, or correct the label %s of the pods", g.Key, schedulingv1alpha1.PodGroupLabel)
	case g.Key.Source == gangrequest.SourceAnnotation && len(live) > 0 && !slices.ContainsFunc(live, sized):
		e.Reason = fmt.Sprintf("no %s is given (members there: %d): %v", gangrequest.GangSizeKey, len(live), g.Err)
		e.Next = "set " + gangrequest.GangSizeKey + " to how many members start together, of which " + strconv.Itoa(len(live)) + " exist now" + command(live, annotation{key: gangrequest.GangSizeKey, value: strconv.Itoa(len(live))})
	}
}

// sizeOf says of a PodGroup without a size how to give it one.
func (e *Explanation) sizeOf(group *schedulingv1alpha1.PodGroup, g *gangrequest.Gang) {
	if group != nil && group.Spec.MinMember == 0 {
		e.Evidence = append(e.Evidence, fmt.Sprintf("%s: spec.minMember is missing, and taken to be 1; to set it: kubectl -n %s patch podgroups.scheduling.x-k8s.io %s --type merge -p '{\"spec\":{\"minMember\":%d}}'",
			g.Key, group.Namespace, group.Name, len(g.Members.Live)))
	}
}

// crowded finds what the members have too little of beside each other, where devices would do: the one
// thing that they would have to do without to be placed, or the fewest, of which the first is the cause. What
// nodes have left is said for the members that ask most. It reports whether there is such a thing.
func (a *ask) crowded(e *Explanation, fits string) bool {
	found := fewest(besides(a), a.fitsAsking)
	var texts []string
	for _, b := range found {
		shapes := slices.Clone(a.shapes)
		slices.SortStableFunc(shapes, func(x, y *question) int { return cmp.Compare(asks(y, b.resource), asks(x, b.resource)) })
		for _, q := range shapes {
			text := b.of(q)
			if text == "" {
				continue
			}
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
			left := a.forPod(q).leftBeside(b.resource)
			if e.Evidence = append(e.Evidence, left...); len(left) > 0 {
				break
			}
		}
	}
	if found != nil {
		e.Cause, e.Reason = found[0].cause, strings.Join(texts, "; ")+": "+fits
	}
	return found != nil
}
