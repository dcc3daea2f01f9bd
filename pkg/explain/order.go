// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// offered is what a node would give a pod.
type offered struct {
	node  *node
	offer nodeindex.Offer
}

// bestNow finds the node that the scheduler would choose if the pod were placed anew, and the faster
// one that it would leave to larger pods. Of equal nodes the pod's own is taken.
func (s *scene) bestNow(c *Choice, q *question, on *node) {
	self := map[types.UID]bool{q.pod.UID: true}
	all, best := s.offers(q, on, self)
	for i := range all {
		if best.Among(&all[i].offer) {
			best.Add(&all[i].offer)
		}
	}
	var most int64
	var chosen *node
	for i := range all {
		x := &all[i]
		if !best.Among(&x.offer) {
			continue
		}
		raw := s.Profile.Order.Weights.Raw(&x.offer, &best)
		if chosen == nil || raw > most || raw == most && x.node.object.Name == on.object.Name {
			chosen, most = x.node, raw
		}
	}
	if chosen == nil {
		return
	}
	c.Best, c.BestNode = chosen.set(q, s.Now), chosen.object.Name
	if left, ok := best.LeftFaster(); ok {
		n := all[left.Node].node
		c.Left = &allocation.Left{Node: n.object.Name, Model: n.model(q.resource()), Millis: 1000 * left.Seconds, PodsOf: left.PodsOf}
	}
}

// offers are what the nodes that the pod may run on would give it if the pods that are gone were, and
// the node that leads them.
func (s *scene) offers(q *question, on *node, gone map[types.UID]bool) ([]offered, nodeindex.Best) {
	var all []offered
	best := nodeindex.NoBest(s.terms(q, gone))
	for _, n := range s.nodes {
		if n == on {
			n = on.without(gone)
		}
		if n.graph == nil || n.counts != placement.Fits || len(n.obstacles(q, s.Now)) > 0 {
			continue
		}
		o, ok := placement.Rate(n.usage(s.Now), q.demand.Request)
		if !ok {
			continue
		}
		o.Preference = q.demand.Prefers(n.object)
		best.Lead(&o, len(all))
		all = append(all, offered{n, o})
	}
	return all, best
}

// terms are those by which the scheduler compares nodes for the pod, as if the pods that are gone were.
func (s *scene) terms(q *question, gone map[types.UID]bool) nodeindex.Terms {
	x, resource := nodeindex.NewIndex(), q.resource()
	for i, n := range s.nodes {
		if n.graph == nil {
			continue
		}
		accel := n.graph.Accel(resource)
		if accel == nil {
			continue
		}
		var pods []int
		for j := range n.here {
			count := n.here[j].Amounts().GetScalarResources()[v1.ResourceName(resource)]
			if count > 0 && !gone[n.here[j].Object.UID] {
				pods = append(pods, int(min(count, nvtopo.MaxGPUs)))
			}
		}
		x.Put(i, nodeindex.Machine{Tables: accel.Tables, Healthy: accel.Healthy, Degraded: accel.Degraded})
		x.Run(i, pods)
	}
	d := nodeindex.Demand{GPUs: q.demand.Resources[0].Count, Bytes: q.demand.MessageBytes}
	return nodeindex.TermsOf(&d, &s.Profile.Order, x.Reserved(d.GPUs, s.Profile.Order.Headroom))
}

// model names the model of a node's GPUs as node labels do; empty if it is not known.
func (n *node) model(resource string) string {
	if n.graph != nil {
		if accel := n.graph.Accel(resource); accel != nil {
			return nvtopo.ModelLabel(accel.Graph.Model())
		}
	}
	return ""
}

// millis is the time of an all-reduce on what a pod has; 0 for one GPU, or if that is not known.
func (n *node) millis(q *question, a *allocation.Allocation) float64 {
	if n.graph == nil {
		return 0
	}
	accel := n.graph.Accel(q.resource())
	if accel == nil {
		return 0
	}
	m := a.Mask(q.resource(), accel.Graph)
	o := nodeindex.Offer{Ring: accel.Tables.Ring(m), Latency: accel.Tables.Latency(m)}
	return 1000 * o.Seconds(m.Len(), cmp.Or(q.demand.MessageBytes, nodeindex.DefaultBytes))
}
