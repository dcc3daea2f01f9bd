// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// explainBound says what a pod has, why it was chosen, and what it could have now.
func (s *scene) explainBound(e *Explanation, p *v1.Pod) {
	e.Choice = &Choice{Node: p.Spec.NodeName}
	e.Reason = "the pod is on node " + p.Spec.NodeName
	if key, member := gangrequest.KeyOf(p); member {
		e.Gang = s.gangOf(key)
	}
	n := s.byName[p.Spec.NodeName]
	q, err := s.question(p)
	if n == nil || err != nil || !q.demand.HasGPUs() {
		return
	}
	a := usage.AnnotationReader{}.Allocation(p, p.Spec.NodeName)
	if a == nil {
		e.Reason += ", and nobody chose its GPUs"
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == allocation.ConditionPlacedByCount && c.Status == v1.ConditionTrue {
				e.Evidence = append(e.Evidence, c.Message)
			}
		}
		return
	}
	e.Choice.At, e.Choice.Set = &a.Assumed, n.describe(a, q.resource())
	e.Choice.Decision = decisionOf(e, p, a)
	s.bestNow(e.Choice, q, n)
	if e.Choice.Set != nil && e.Choice.Best != nil {
		e.Evidence = append(e.Evidence, compared(e.Choice))
	}
}

// decisionOf is the record of the pod's choice, nil if there is none of this very choice.
func decisionOf(e *Explanation, p *v1.Pod, a *allocation.Allocation) *allocation.Decision {
	text, ok := p.Annotations[allocation.DecisionKey]
	if !ok {
		return nil
	}
	d, err := allocation.ParseDecision(text)
	switch {
	case err != nil:
		e.Evidence = append(e.Evidence, "why it was chosen cannot be read: "+err.Error())
		return nil
	case !d.Of(a):
		e.Evidence = append(e.Evidence, "annotation "+allocation.DecisionKey+" is of another choice")
		return nil
	}
	return d
}

// bestNow finds the best set that a node would give the pod if it were placed anew.
func (s *scene) bestNow(c *Choice, q *question, on *node) {
	for _, n := range s.nodes {
		if n == on {
			n = on.without(map[types.UID]bool{q.pod.UID: true})
		}
		if len(n.obstacles(q, s.Now)) > 0 {
			continue
		}
		set := n.set(q, s.Now)
		if set.betterThan(c.Best) || set != nil && n.object.Name == on.object.Name && !c.Best.betterThan(set) {
			c.Best, c.BestNode = set, n.object.Name
		}
	}
}

func compared(c *Choice) string {
	if !c.Best.betterThan(c.Set) {
		return "no set that is free now is better"
	}
	return fmt.Sprintf("node %s would give a better set now: %s", c.BestNode, c.Best)
}

// String describes a set in a few words.
func (s *Set) String() string {
	gpus := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Ring), "[]"), " ", ",")
	if s.LinkClass == "" {
		return "GPU " + gpus
	}
	return fmt.Sprintf("GPUs %s, %s, %v GB/s of %v", gpus, s.LinkClass, s.BandwidthGBps, s.BestGBps)
}
