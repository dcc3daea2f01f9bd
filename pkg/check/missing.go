// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// checkMissing judges a pod of ours that was bound without an allocation.
func (s *scene) checkMissing(p *pod) {
	v := Violation{
		Invariant: MissingAllocation, Objects: []Object{podObject(p.Pod), {Kind: "Node", Name: p.Spec.NodeName}}, Field: allocationField,
		Message: fmt.Sprintf("it asks for %s and scheduler %s bound it without saying which", counts(p.asks), p.Spec.SchedulerName),
	}
	r, err := podrequest.Parse(p.Pod, p.options())
	if err != nil || r.NeedsGraph() {
		s.violate(v)
		return
	}
	permitted := r.NoTopology || p.profile.AllowNoGraph || p.profile.CountStale
	known := len(p.profile.Resources) > 0 // its scheduler says what it permits
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

// hadGraph reports whether a pod without a mark cannot have been placed by count,
// though its profile permits that. That the mark is not there proves nothing: the
// scheduler writes it once, after the binding, and a PATCH that fails, a process that
// ends before it or a Binding that is carried out late leave none behind. What has to
// be out of the question is that the graph did not count.
//
// Of a graph that was stale that cannot be said. A Lease tells of its last renewal
// only, and the condition Stale comes late, from whoever leads, if anybody does. So
// pods that a stale graph lets through, those of policy none and of profiles that count
// on stale nodes, stay a note. With nodesWithoutTopology: Allow alone it must have been
// missing, of another Node or unreadable. It was not if it can be read now, is of this
// Node, and neither it nor the health in it has changed since before the pod, and with
// that before any attempt to place it; not before the binding, which may come
// long after the choice.
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
