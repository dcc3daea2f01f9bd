// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// checkMissing judges a pod of ours that was bound without an allocation.
func (s *scene) checkMissing(p *pod) {
	v := Violation{
		Invariant: MissingAllocation, Objects: []Object{podObject(p.Pod), {Kind: "Node", Name: p.Spec.NodeName}}, Field: allocationField,
		Message: fmt.Sprintf("it asks for %s, and scheduler %s bound it without choosing which", counts(p.asks), p.Spec.SchedulerName),
	}
	r, err := podrequest.Parse(p.Pod, p.options())
	if err != nil || r.NeedsGraph() {
		s.violate(v)
		return
	}
	permitted := r.NoTopology || p.profile.AllowNoGraph || p.profile.CountStale
	known := len(p.profile.Resources) > 0 // its scheduler's settings are known
	switch {
	case markedByCount(p.Pod):
		v.Invariant, v.Message = PlacedByCount, v.Message+", which its policy or profile permits where no graph counts"
		s.note(v)
	case permitted && !s.hadGraph(p, r):
		v.Invariant, v.Message = PlacedByCount, v.Message+", which its policy or profile permits where no graph counts; it is not marked so"
		s.note(v)
	case (permitted || !known) && s.w.Now.Before(boundAt(p.Pod).Add(DefaultGrace)):
		s.pend(v) // the mark comes after the binding
	default:
		if permitted {
			v.Message += ", though the node's graph was there before the pod"
		}
		s.violate(v)
	}
}

func markedByCount(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == allocation.ConditionPlacedByCount && c.Status == v1.ConditionTrue
	})
}

// hadGraph reports whether it is certain that a pod without the mark was not placed by
// count, although its profile permits that. The missing mark proves nothing. The
// scheduler writes it once, after the binding, so the mark is missing after a failed
// PATCH, a process that ended first, or a Binding that was carried out late. So it must
// be certain that the node's graph counted.
//
// It is never certain if a stale graph would also have let the pod through: a Lease
// shows only its last renewal, and the condition Stale is written late, by the leader,
// if there is one. So pods of policy none, and pods of profiles that count on stale
// nodes, are a note. With only nodesWithoutTopology: Allow, a pod is placed by count if
// the graph is missing, about another Node, or unreadable. None of that was so if the
// graph can be read now, is about this Node, and neither it nor its health has changed
// since before the pod was created, and so before any attempt to place it. The time of
// the binding does not help: it may be long after the choice.
func (s *scene) hadGraph(p *pod, r *podrequest.Request) bool {
	if r.NoTopology || p.profile.CountStale || p.node.accels == nil {
		return false
	}
	last := p.node.changed
	if p.node.health.After(last) {
		last = p.node.health
	}
	created := p.CreationTimestamp.Time
	return last.Add(time.Second+s.w.lag()).Before(created) && inputsChanged(p.Pod, created) == ""
}
