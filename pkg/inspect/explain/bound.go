// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// explainBound says what a pod has, why it was chosen, and what it could have now.
func (s *scene) explainBound(e *Explanation, p *v1.Pod) {
	self := map[types.UID]bool{p.UID: true}
	q, n, _ := s.explainChoice(e, p, self)
	if e.Choice.Best != nil && e.Choice.Set != nil {
		e.Evidence = append(e.Evidence, compared(e.Choice, n.without(self).obstacles(q, s.now)))
	}
}

// explainChoice says what a pod has, why it was chosen, and what the scheduler would choose without the
// pods that are gone. It returns what the pod asks, its node, and the nodes that come next.
func (s *scene) explainChoice(e *Explanation, p *v1.Pod, gone map[types.UID]bool) (q *question, n *node, behind []Behind) {
	e.Choice = &Choice{Node: p.Spec.NodeName}
	e.Reason = "the pod is on node " + p.Spec.NodeName
	if key, member := gangrequest.KeyOf(p); member {
		g, group := s.readGang(key)
		e.Gang = describeGang(g)
		if summary := summaryOf(g, group); summary != "" {
			e.Evidence = append(e.Evidence, key.String()+": "+summary)
		}
	}
	n = s.byName[p.Spec.NodeName]
	q, err := s.question(p)
	if n == nil || err != nil || !q.demand.HasGPUs() {
		return q, n, nil
	}
	a := usage.AnnotationReader{}.Allocation(p, p.Spec.NodeName)
	if a == nil {
		e.Reason += ", and nobody chose its GPUs"
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == allocation.ConditionPlacedByCount && c.Status == v1.ConditionTrue {
				e.Evidence = append(e.Evidence, c.Message)
			}
		}
		return q, n, nil
	}
	e.Choice.At, e.Choice.Set = &a.Assumed, n.describe(a, q.resource())
	e.Choice.Decision = decisionOf(e, p, a)
	if e.Gang != nil { // it is where the plan of its gang has it, whatever other nodes have for it alone
		return q, n, nil
	}
	r := &ranking{s.forPod(q), gone, refusals.Of(refusals.Seen(s.Pods), s.now)}
	behind = r.bestNow(e.Choice, n)
	if e.Choice.Set == nil {
		return q, n, behind
	}
	if text := e.Choice.toLarger(n.model(q.resource()), n.millis(q, a), len(e.Choice.Set.Ring)); text != "" {
		e.Evidence = append(e.Evidence, text)
	}
	return q, n, behind
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

// toLarger says what a pod has beside the faster node that was left to larger pods: then, if the record
// of the decision says so, or else now. Empty if there is none.
func (c *Choice) toLarger(model string, millis float64, gpus int) string {
	left := c.Left
	if c.Decision != nil && c.Decision.Left != nil {
		left, millis = c.Decision.Left, c.Decision.Millis
	}
	if left == nil || left.Millis >= millis { // as where the pod has such a machine
		return ""
	}
	has := fabric.Alternative{Model: model, GPUs: gpus, Domain: c.Node, Millis: millis}
	return has.String() + "; " + left.String()
}

// compared says how what the pod has compares with what the scheduler would choose now. refusal is what keeps the
// pod off its own node now, were it not there.
func compared(c *Choice, refusal []Obstacle) string {
	switch {
	case len(refusal) > 0 && c.BestNode != c.Node:
		return fmt.Sprintf("the scheduler would not choose node %s now: %s; of the others it would choose %s", c.Node, refusal[0].Text, c.BestNode)
	case c.Best.betterThan(c.Set):
	case c.Left != nil:
		return "the scheduler would choose no better set now, but for those that are left to larger pods"
	case c.BestNode != c.Node:
		return "the scheduler would choose no faster set now, but node " + c.BestNode + ", which costs those who come later less"
	default:
		return "the scheduler would choose no better set now"
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
