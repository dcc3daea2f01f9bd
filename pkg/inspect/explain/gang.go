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

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// readGang reads a gang's group and pods. The group is nil if there is none.
func (w *World) readGang(key gangrequest.Key) (g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) {
	if key.Source == gangrequest.SourcePodGroup {
		for i := range w.PodGroups {
			if g := &w.PodGroups[i]; g.Namespace == key.Namespace && g.Name == key.Name {
				group = g
			}
		}
	}
	var pods []*v1.Pod
	for i := range w.Pods {
		if k, ok := gangrequest.KeyOf(&w.Pods[i]); ok && k == key {
			pods = append(pods, &w.Pods[i])
		}
	}
	return gangrequest.Read(key, group, pods), group
}

func placed(p *v1.Pod) bool { return p.Spec.NodeName != "" }

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
	e.Scheduler = cmp.Or(e.Scheduler, saidBy(waiting[0]))
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
	s.explainPlan(e, a, noLeader)
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

// ask is a gang as the planner is asked.
type ask struct {
	gang   *gangrequest.Gang
	wishes gangrequest.Wishes
	shapes []*question
	of     []int               // shape of each member of Live; -1: it is placed, or not needed
	asks   []*placement.Demand // of each member of Live that has a shape
}

// askOf reads what the members that wait ask for.
func (s *scene) askOf(g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) (*ask, error) {
	a := &ask{gang: g, wishes: g.Wishes, of: make([]int, len(g.Members.Live)), asks: make([]*placement.Demand, len(g.Members.Live))}
	for i := range a.of {
		a.of[i] = -1
	}
	needed, extra := g.Members.Split(g.Minimum, placed)
	if len(needed) == 0 {
		needed = extra
	}
	waiting := slices.DeleteFunc(slices.Clone(g.Members.Live), placed)
	shapes := map[string]int{}
	for _, i := range needed {
		q, err := s.question(g.Members.Live[i])
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", g.Members.Live[i].Name, err)
		}
		at, known := shapes[q.shape.Class]
		if !known {
			if q.members = waiting; group != nil {
				q.group = group.Annotations
			}
			at = len(a.shapes)
			shapes[q.shape.Class], a.shapes = at, append(a.shapes, q)
		}
		a.of[i], a.asks[i] = at, q.demand
	}
	return a, nil
}

// plan asks the planner with what the nodes have now.
func (s *scene) plan(a *ask) (*fabric.Plan, error) {
	levels := *a.gang
	levels.Wishes = a.wishes
	wishes, err := levels.WishesIn(s.levels)
	if err != nil {
		return nil, err
	}
	g := placement.Gang{Wishes: wishes}
	for _, q := range a.shapes {
		g.Shapes = append(g.Shapes, &q.shape)
	}
	for i, p := range a.gang.Members.Live {
		m := placement.Member{Pod: p}
		m.Node, m.Bound = s.tree.Node(p.Spec.NodeName)
		switch {
		case m.Bound:
			if d, err := s.demandOf(p); err == nil {
				m.Demand, m.Graph = d, s.nodes[m.Node].graph
			}
		case a.of[i] >= 0:
			m.Node, m.Shape, m.Demand = 0, a.of[i], a.asks[i]
		default:
			continue
		}
		g.Members = append(g.Members, m)
	}
	return g.Plan(s.tree, func(shape, at int, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
		return s.supply(s.nodes[at], a.shapes[shape], used, others)
	})
}

// supply is what a node has for members of one shape, beside others.
func (s *scene) supply(n *node, q *question, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
	if !q.shape.Eligible.Allows(n.object) {
		return fabric.Supply{}
	}
	graph := n.graph
	if n.counts != placement.Fits {
		graph = nil
	}
	return q.shape.Bounded(s.slotter.Supply(q.demand, graph, n.room(), s.Now, used, others, func(given []usage.Reservation) *usage.Usage {
		return n.beside(s.Now, given)
	}), n.object)
}

// explainPlan says what keeps the planner from placing a gang; noLeader says why no scheduler leads, if none
// does.
func (s *scene) explainPlan(e *Explanation, a *ask, noLeader leaderless) {
	plan, err := s.plan(a)
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
			e.Next = clustertopology.MissingLevel(s.tree, unknown.Level)
		}
		return
	}
	e.Gang.Room = room.Have
	member := a.shapes[0]
	all := s.judge(member)
	e.Refusals, e.Candidates = refusalsOf(all), s.candidates(member, all)
	e.Relaxations = s.relaxedGang(a)
	if s.whyNoPlace(e, a, room, all); e.Next == "" {
		e.Next = e.step(a.shapes) + s.changeOfGang(a, e.Cause)
	}
	for _, text := range e.nearest() {
		e.Evidence = append(e.Evidence, "for one member more: "+text)
	}
}

// whyNoPlace is the dominant reason of a gang that has no room as a whole.
func (s *scene) whyNoPlace(e *Explanation, a *ask, room *fabric.UnplaceableError, all []judged) {
	fits := roomOf(room)
	if s.neverGang(e, a) || s.mendedWouldDo(e, a, fits) {
		return
	}
	if a.wishes.Required != "" {
		anywhere := *a
		anywhere.wishes.Required = ""
		if _, err := s.plan(&anywhere); err == nil {
			e.Cause = NoDomain
			e.Reason = fmt.Sprintf("no %s has room for the gang: at most %d of %s", room.Level, room.Have, counted(room.Want, "member"))
			if room.Domain != "" {
				e.Reason += ", in " + room.Domain
			}
			e.Evidence = append(e.Evidence, "without "+gangrequest.RequiredKey+" it would be placed")
			return
		}
	}
	if s.memberAlone(e, a, fits, all) || s.crowded(e, a, fits) {
		return
	}
	e.Cause, e.Reason = FewGPUs, fits
	if room.Detail != "" {
		e.Reason += ", " + room.Detail
	}
	asks, resource := a.gpus(), a.shapes[0].resource()
	if asks == 0 {
		return
	}
	eligible := slices.DeleteFunc(slices.Clone(all), func(j judged) bool { return j.first(ofWish) != nil || j.first(ofFault) != nil || j.first(never) != nil })
	total, with := s.freeOn(a.shapes[0], eligible)
	e.Evidence = append(e.Evidence, "free: "+nodes(with))
	if total >= asks {
		e.Cause = Fragmented
		e.Reason = fmt.Sprintf("%d %s are free on %s and the gang asks %d in all, %d on one node for each member: %s",
			total, resource, counted(len(with), "node"), asks, a.shapes[0].demand.Resources[0].Count, fits)
		return
	}
	e.Reason = fmt.Sprintf("the gang asks %d %s, and %d are free on the nodes that it may run on: %s", asks, resource, total, fits)
}

// memberAlone finds a member that no node takes, even if it were the only one, for another reason than
// too few devices. It reports whether there is one.
func (s *scene) memberAlone(e *Explanation, a *ask, fits string, first []judged) bool {
	for i, q := range a.shapes {
		all, single := first, &Explanation{Candidates: e.Candidates}
		if i > 0 {
			all = s.judge(q)
			single = &Explanation{Candidates: s.candidates(q, all)}
		}
		cause := s.dominant(q, all, single)
		if cause == WaitsForItsTurn || cause == FewGPUs || cause == Fragmented {
			continue
		}
		e.Cause, e.Reason, e.Lacks, e.Next = cause, single.Reason+"; "+fits, single.Lacks, single.Next
		if len(a.shapes) > 1 {
			e.Reason = "member " + q.pod.Name + ": " + e.Reason
		}
		if i > 0 {
			e.Refusals, e.Candidates = refusalsOf(all), single.Candidates
		}
		e.Evidence = append(e.Evidence, single.Evidence...)
		return true
	}
	return false
}

// roomOf says how many members fit, by model where that matters.
func roomOf(room *fabric.UnplaceableError) string {
	if len(room.Models) == 0 {
		return fmt.Sprintf("room for %d of %s", room.Have, counted(room.Want, "member"))
	}
	text := "members get one model, of which there is room for " + room.Room()
	if room.MixedFits {
		text += "; " + gangrequest.MixedModelsKey + ": true would fit"
	}
	return text
}

// gpus is how many devices the members ask that wait.
func (a *ask) gpus() (total int) {
	for _, shape := range a.of {
		if shape >= 0 && a.shapes[shape].demand.HasGPUs() {
			total += a.shapes[shape].demand.Resources[0].Count
		}
	}
	return total
}

// relaxedGang is what the gang would get without one of its wishes, or of its members'.
func (s *scene) relaxedGang(a *ask) (out []Relaxation) {
	for _, w := range append(gangWishes(a), s.memberWishes(a)...) {
		less, ok := s.without(a, []wish{w})
		if !ok {
			continue
		}
		if plan, err := s.plan(less); err == nil {
			out = append(out, Relaxation{Wish: w.name, Nodes: len(nodesOf(plan)), Level: plan.Level})
		}
	}
	return out
}

func nodesOf(p *fabric.Plan) map[int]bool {
	out := map[int]bool{}
	for _, at := range p.Nodes {
		out[at] = true
	}
	return out
}
