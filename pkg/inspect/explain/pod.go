// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// explainNodes explains a pod that only nodes keep waiting.
func (x *podAsk) explainNodes(e *Explanation, noLeader leaderless) {
	all := x.judge()
	e.Refusals = refusalsOf(all)
	e.Candidates = x.candidates(all)
	switch cause := x.dominant(all, e); cause {
	case WaitsForItsTurn:
		e.fitsNow(all, noLeader)
	default:
		if e.Cause = cause; e.Next == "" {
			e.Next = e.step([]*question{x.q}) + x.change(cause)
		}
		e.Evidence = append(e.Evidence, e.nearest()...)
		e.alsoNoLeader(noLeader)
		e.Relaxations = x.relaxations()
	}
}

// sorted are the nodes by what would have to change there.
type sorted struct {
	now      []judged // nothing
	mended   []judged // faults alone
	busy     []judged // pods alone
	faulty   []judged // faults, on nodes that are full besides, or unhealthy GPUs
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
		case j.is(ofFault) && !j.sick():
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
func (x *podAsk) dominant(all []judged, e *Explanation) Cause {
	by := sortByNeed(all)
	switch {
	case len(by.now) > 0:
		return WaitsForItsTurn
	case len(by.mended) > 0:
		return e.most(by.mended, ofFault)
	case len(by.busy) > 0:
		return x.occupied(by.busy, e)
	case len(by.faulty) > 0:
		return e.most(by.faulty, ofFault)
	case len(by.excluded) > 0:
		return e.most(by.excluded, ofWish)
	case len(by.lacking) > 0:
		return x.neverPod(by.lacking, e)
	case len(by.unwanted) > 0:
		return e.most(offering(x.q, by.unwanted), ofWish)
	case len(by.both) > 0:
		return x.neverPod(by.both, e)
	}
	e.Reason = "there are no nodes"
	return NoNodes
}

// occupied is the reason where pods hold what is needed.
func (x *podAsk) occupied(busy []judged, e *Explanation) Cause {
	first := func(j judged) bool { return len(e.Candidates) > 0 && j.object.Name == e.Candidates[0].Node }
	nearest := &busy[max(0, slices.IndexFunc(busy, first))]
	o := nearest.first(ofPods)
	if !x.q.demand.HasGPUs() {
		e.Reason = fmt.Sprintf("%s on any of %s", o.Text, counted(len(busy), "node"))
		e.Evidence = append(e.Evidence, nearest.object.Name+": "+o.Detail)
		return o.Cause
	}
	asks := x.q.demand.Resources[0].Count
	total, with := x.freeOn(busy)
	if o.Cause == FewGPUs && total >= asks {
		e.Reason = fmt.Sprintf("%d %s are free on %s, and the pod asks %d on one", total, x.q.resource(), counted(len(with), "node"), asks)
		e.Evidence = append(e.Evidence, "free: "+nodes(with))
		return Fragmented
	}
	e.Reason = fmt.Sprintf("%s: %s", nearest.object.Name, o.Text)
	if o.Cause == FewGPUs {
		e.Reason = fmt.Sprintf("the pod asks %d %s, and %d are free on the nodes that it may run on", asks, x.q.resource(), total)
	}
	if o.Detail != "" {
		e.Evidence = append(e.Evidence, nearest.object.Name+": "+o.Detail)
	}
	return o.Cause
}

// fitsNow explains a pod that has a place; noLeader says why no scheduler leads, if none does.
func (e *Explanation) fitsNow(all []judged, noLeader leaderless) {
	var free []string
	for i := range all {
		if len(all[i].obstacles) == 0 {
			free = append(free, all[i].object.Name)
		}
	}
	e.Cause, e.Reason, e.Next = WaitsForItsTurn, nodes(free)+" would take the pod now", noLeader.turn
	if noLeader.why != "" {
		e.Evidence = append(e.Evidence, e.Reason)
		e.Cause, e.Reason, e.Next = NoScheduler, noLeader.why, noLeader.next
	} else if said := e.Scheduler; said != "" {
		e.Cause, e.Next = OtherPlugin, nextSteps[OtherPlugin]
		e.Reason = "the scheduler refuses the pod for a reason that is not about GPUs or has passed: " + said
		e.Evidence = append(e.Evidence, nodes(free)+" would take the pod, as far as GPUs, CPU, memory, taints and node affinity go")
	}
}

// nearest says what would help on the nearest node, if it is that pods go.
func (e *Explanation) nearest() []string {
	if len(e.Candidates) == 0 || len(e.Candidates[0].Blockers) == 0 {
		return nil
	}
	c := &e.Candidates[0]
	text := c.Node + " would take it"
	if c.Gets != nil {
		text = fmt.Sprintf("%s would give it %s", c.Node, c.Gets)
	}
	text += " if " + strings.Join(c.pods(), " and ") + " went"
	if to := c.movesTo(); len(to) > 0 {
		text += ", which " + strings.Join(to, " and ") + " would take"
	} else if c.homeless() {
		text += "; " + noRoomElsewhere
	}
	out := []string{text}
	for _, b := range c.Blockers {
		if b.Stays != "" && len(out) <= maxNamed {
			out = append(out, b.Pod+" is not to be moved: "+b.Stays)
		}
	}
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
