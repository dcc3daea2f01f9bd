// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Bounds of what is shown.
const (
	maxNamed      = 3  // nodes named with a refusal
	maxCandidates = 4  // nearest nodes
	maxSearched   = 64 // nodes on which blockers are looked for
)

// judged is what keeps the pod off one node.
type judged struct {
	*node
	obstacles []Obstacle
}

// is reports whether all obstacles are of some kinds; true without any.
func (j *judged) is(kinds ...kind) bool {
	return !slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return !slices.Contains(kinds, o.kind) })
}

// first is the first obstacle of a kind.
func (j *judged) first(k kind) *Obstacle {
	for i := range j.obstacles {
		if j.obstacles[i].kind == k {
			return &j.obstacles[i]
		}
	}
	return nil
}

// judge asks every node. What even the empty node lacks is marked as such.
func (s *scene) judge(q *question) (out []judged) {
	for _, n := range s.nodes {
		j := judged{node: n, obstacles: n.obstacles(q, s.Now)}
		if j.first(ofPods) != nil {
			lasting := n.emptied().obstacles(q, s.Now)
			for i := range j.obstacles {
				o := &j.obstacles[i]
				if o.kind == ofPods && slices.ContainsFunc(lasting, func(l Obstacle) bool { return l.kind == ofPods && l.Cause == o.Cause }) {
					o.kind = never
				}
			}
			// The empty node may refuse for what does not show while it is full.
			for _, l := range lasting {
				if l.kind == ofPods && !slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return o.Cause == l.Cause }) {
					l.kind = never
					j.obstacles = append(j.obstacles, l)
				}
			}
		}
		out = append(out, j)
	}
	return out
}

// explainNodes explains a pod that only nodes keep waiting.
func (s *scene) explainNodes(e *Explanation, q *question) {
	all := s.judge(q)
	e.Refusals = refusalsOf(all)
	e.Candidates = s.candidates(q, all)
	switch cause := s.dominant(q, all, e); cause {
	case WaitsForItsTurn:
		e.fitsNow(all, s.noLeader(q.pod))
	default:
		if e.Cause = cause; e.Next == "" {
			e.Next = e.step([]*question{q}) + s.change(q, cause)
		}
		e.Evidence = append(e.Evidence, e.nearest()...)
		e.alsoNoLeader(s.noLeader(q.pod))
		e.Relaxations = s.relaxations(q)
	}
}

// sorted are the nodes by what would have to change there.
type sorted struct {
	now      []judged // nothing
	mended   []judged // faults alone
	busy     []judged // pods alone
	faulty   []judged // faults, on nodes that are full besides
	excluded []judged // taints or cordons, and perhaps pods
	lacking  []judged // nothing would help: not even the empty node does
	unwanted []judged // the pod's own node selector alone
	both     []judged // they are excluded or unwanted, and nothing would help
}

func sortByNeed(all []judged) (out sorted) {
	for _, j := range all {
		to := &out.faulty
		switch wish := j.first(ofWish); {
		case len(j.obstacles) == 0:
			to = &out.now
		case j.is(ofFault):
			to = &out.mended
		case j.is(ofPods):
			to = &out.busy
		case wish == nil && j.first(never) != nil:
			to = &out.lacking
		case wish != nil && wish.Cause != NotSelected && j.first(never) == nil:
			to = &out.excluded
		case wish != nil && j.first(never) != nil:
			to = &out.both
		case wish != nil:
			to = &out.unwanted
		}
		*to = append(*to, j)
	}
	return out
}

// dominant is the reason that has to go first; WaitsForItsTurn if some node takes the pod. Nodes
// that the pod could run on as it is count before those that something excludes.
func (s *scene) dominant(q *question, all []judged, e *Explanation) Cause {
	by := sortByNeed(all)
	switch {
	case len(by.now) > 0:
		return WaitsForItsTurn
	case len(by.mended) > 0:
		return e.most(by.mended, ofFault)
	case len(by.busy) > 0:
		return s.occupied(q, by.busy, e)
	case len(by.faulty) > 0:
		return e.most(by.faulty, ofFault)
	case len(by.excluded) > 0:
		return e.most(by.excluded, ofWish)
	case len(by.lacking) > 0:
		return s.neverPod(q, by.lacking, e)
	case len(by.unwanted) > 0:
		return e.most(offering(q, by.unwanted), ofWish)
	case len(by.both) > 0:
		return s.neverPod(q, by.both, e)
	}
	e.Reason = "there are no nodes"
	return NoNodes
}

// offering are the nodes that have such devices at all, or all if none has.
func offering(q *question, all []judged) []judged {
	out := slices.DeleteFunc(slices.Clone(all), func(j judged) bool { return j.offers(q.resource()) == 0 })
	if len(out) == 0 {
		return all
	}
	return out
}

// most makes the reason the obstacle of one kind of the most nodes.
func (e *Explanation) most(all []judged, k kind) Cause {
	count := map[Cause]int{}
	var best *Obstacle
	for i := range all {
		o := all[i].first(k)
		count[o.Cause]++
		if best == nil || count[o.Cause] > count[best.Cause] {
			best = o
		}
	}
	var named []string
	for i := range all {
		if o := all[i].first(k); o.Cause == best.Cause {
			named = append(named, all[i].object.Name)
			if len(e.Evidence) < maxNamed {
				e.Evidence = append(e.Evidence, strings.TrimSuffix(all[i].object.Name+": "+cmp.Or(o.Detail, o.Text), ": "))
			}
		}
	}
	what := map[kind]string{
		ofFault: "would do but for this", ofWish: "would do but for this", never: "cannot take the pod even when empty",
	}[k]
	if best.Cause == causeOf(placement.NoGraph) || best.Cause == causeOf(placement.NoDefinition) { // what it has is not known
		what = "may do but for this"
	}
	e.Reason = fmt.Sprintf("%s: %s %s", best.Text, nodes(named), what)
	return best.Cause
}

// occupied is the reason where pods hold what is needed.
func (s *scene) occupied(q *question, busy []judged, e *Explanation) Cause {
	nearest := &busy[0]
	if len(e.Candidates) > 0 {
		for i := range busy {
			if busy[i].object.Name == e.Candidates[0].Node {
				nearest = &busy[i]
			}
		}
	}
	o := nearest.first(ofPods)
	if !q.demand.HasGPUs() {
		e.Reason = fmt.Sprintf("%s on any of %s", o.Text, counted(len(busy), "node"))
		e.Evidence = append(e.Evidence, nearest.object.Name+": "+o.Detail)
		return o.Cause
	}
	asks := q.demand.Resources[0].Count
	total, with := s.freeOn(q, busy)
	if o.Cause == FewGPUs && total >= asks {
		e.Reason = fmt.Sprintf("%d %s are free on %s, and the pod asks %d on one", total, q.resource(), counted(len(with), "node"), asks)
		e.Evidence = append(e.Evidence, "free: "+nodes(with))
		return Fragmented
	}
	e.Reason = fmt.Sprintf("%s: %s", nearest.object.Name, o.Text)
	if o.Cause == FewGPUs {
		e.Reason = fmt.Sprintf("the pod asks %d %s, and %d are free on the nodes that it may run on", asks, q.resource(), total)
	}
	if o.Detail != "" {
		e.Evidence = append(e.Evidence, nearest.object.Name+": "+o.Detail)
	}
	return o.Cause
}

// freeOn counts the devices that are free on some nodes, and names those that have some.
func (s *scene) freeOn(q *question, all []judged) (total int, with []string) {
	for i := range all {
		if free := all[i].free(s.Now, q.resource()); free > 0 {
			total += free
			with = append(with, fmt.Sprintf("%s %d", all[i].object.Name, free))
		}
	}
	return total, with
}

// fitsNow explains a pod that has a place; noLeader says why no scheduler leads, if none does.
func (e *Explanation) fitsNow(all []judged, noLeader leaderless) {
	var free []string
	for i := range all {
		if len(all[i].obstacles) == 0 {
			free = append(free, all[i].object.Name)
		}
	}
	e.Cause, e.Reason = WaitsForItsTurn, nodes(free)+" would take the pod now"
	if noLeader.why != "" {
		e.Evidence = append(e.Evidence, e.Reason)
		e.Cause, e.Reason = NoScheduler, noLeader.why
	} else if said := e.Scheduler; said != "" {
		e.Cause, e.Reason = OtherPlugin, "the scheduler refuses the pod for a reason that is not about GPUs or has passed: "+said
		e.Evidence = append(e.Evidence, nodes(free)+" would take the pod, as far as GPUs, CPU, memory, taints and node affinity go")
	}
	e.Next = nextSteps[e.Cause]
	switch e.Cause { // of the namespace that the scheduler runs in
	case NoScheduler:
		e.Next = noLeader.next
	case WaitsForItsTurn:
		e.Next = noLeader.turn
	}
}

// nearest says what would help on the nearest node, if it is that pods go.
func (e *Explanation) nearest() []string {
	if len(e.Candidates) == 0 || len(e.Candidates[0].Blockers) == 0 {
		return nil
	}
	c := &e.Candidates[0]
	var pods []string
	for _, b := range c.Blockers {
		pods = append(pods, b.Pod)
	}
	text := c.Node + " would take it"
	if c.Gets != nil {
		text = fmt.Sprintf("%s would give it %s", c.Node, c.Gets)
	}
	text += " if " + strings.Join(pods, " and ") + " went"
	if to := c.Blockers[0].MovesTo; to != "" {
		text += ", which " + to + " would take"
	}
	out := []string{text}
	for _, b := range c.Blockers {
		if b.Stays != "" && len(out) <= maxNamed {
			out = append(out, b.Pod+" is not to be moved: "+b.Stays)
		}
	}
	return out
}

// refusalsOf counts nodes by the first reason of each, the most frequent first.
func refusalsOf(all []judged) (out []Refusal) {
	for i := range all {
		for _, o := range all[i].obstacles[:min(1, len(all[i].obstacles))] {
			at := slices.IndexFunc(out, func(r Refusal) bool { return r.Cause == o.Cause })
			if at < 0 {
				at, out = len(out), append(out, Refusal{Cause: o.Cause, Text: o.Text})
			}
			r := &out[at]
			if r.Nodes++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, all[i].object.Name)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Refusal) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out
}

// saidBy is what the scheduler wrote on the pod.
func saidBy(p *v1.Pod) string {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// nodes names the first few of some nodes.
func nodes(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
