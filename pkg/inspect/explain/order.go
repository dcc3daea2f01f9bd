// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// offered is what a node would give a pod.
type offered struct {
	node  *node
	offer nodeindex.Offer
	spare nodeindex.Spare
}

// bestNow finds the node that the scheduler would choose if the pod were placed without the pods that are gone,
// itself among them, and the faster one that it would leave to larger pods. Of nodes between which the scheduler
// draws lots the pod's own is taken. The nodes that come next are returned.
func (s *scene) bestNow(c *Choice, q *question, on *node, gone map[types.UID]bool) []Behind {
	all, best := s.offers(q, gone)
	for i := range all {
		if best.Among(&all[i].offer) {
			best.Add(&all[i].offer)
		}
	}
	var most int64
	var chosen *offered
	for i := range all {
		x := &all[i]
		if !best.Among(&x.offer) {
			continue
		}
		raw := q.profile.Order.Weights.Raw(&x.offer, &best)
		better := chosen == nil || raw > most || raw == most && x.spare < chosen.spare
		if better || raw == most && x.spare == chosen.spare && x.node.object.Name == on.object.Name {
			chosen, most = x, raw
		}
	}
	if chosen == nil {
		return nil
	}
	c.Profile, c.Assumed = q.profile.SchedulerNames[0], q.profile.Assumed
	c.Best, c.BestNode = chosen.node.set(q, s.Now), chosen.node.object.Name
	c.Compared, c.NotCompared = len(all), s.notCompared(q, gone, all)
	if left, ok := best.LeftFaster(); ok {
		n := all[left.Node].node
		c.Left = &allocation.Left{Node: n.object.Name, Model: n.model(q.resource()), Millis: 1000 * left.Seconds, PodsOf: left.PodsOf}
	}
	return s.behind(q, all, &best, chosen)
}

// offers are what the nodes that the pod may run on would give it if the pods that are gone were, and
// the node that leads them. Nodes whose kubelet refuses pods take part if there are no others.
func (s *scene) offers(q *question, gone map[types.UID]bool) ([]offered, nodeindex.Best) {
	machines := s.machines(q, gone)
	d := nodeindex.Demand{GPUs: q.demand.Resources[0].Count, Bytes: q.demand.MessageBytes}
	best := nodeindex.NoBest(nodeindex.TermsOf(&d, &q.profile.Order, machines.Reserved(d.GPUs, q.profile.Order.Headroom)))
	marks := refusals.Of(refusals.Seen(s.Pods), s.Now)
	var all, behind []offered
	for i, n := range s.nodes {
		n = n.without(gone)
		if n.graph == nil || n.counts != placement.Fits || len(n.obstacles(q, s.Now)) > 0 {
			continue
		}
		o, ok := placement.Rate(n.usage(s.Now), q.demand.Request)
		if !ok {
			continue
		}
		o.Preference = q.demand.Prefers(n.object)
		x := offered{node: n, offer: o}
		if len(s.levels) > 0 {
			x.spare = machines.Spare(i)
		}
		if marks.Has(n.object.Name, s.Now) {
			behind = append(behind, x)
		} else {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		all = behind
	}
	for i := range all {
		best.Lead(&all[i].offer, i)
	}
	return all, best
}

// RefusedPods is, of a node that is not compared, that its kubelet refused several pods lately. It keeps no pod waiting.
const RefusedPods Cause = "RefusedPods"

// notCompared says why the nodes that are not among the offers took no part, were the pods that are gone.
func (s *scene) notCompared(q *question, gone map[types.UID]bool, all []offered) []Refusal {
	taking := map[string]bool{}
	for i := range all {
		taking[all[i].node.object.Name] = true
	}
	var out []judged
	for _, n := range s.nodes {
		if taking[n.object.Name] {
			continue
		}
		n = n.without(gone)
		j := judged{node: n, obstacles: n.obstacles(q, s.Now)}
		switch {
		case len(j.obstacles) > 0:
		case n.graph == nil || n.counts != placement.Fits: // the pod may go there, and nothing tells what it would get
			j.obstacles = []Obstacle{refused(q, n.counts, n.why())}
		default:
			j.obstacles = []Obstacle{{Cause: RefusedPods, Text: "its kubelet refused several pods with GPUs lately"}}
		}
		out = append(out, j)
	}
	return refusalsOf(out)
}

// machines are the nodes as the scheduler compares them for the pod, as if the pods that are gone were.
func (s *scene) machines(q *question, gone map[types.UID]bool) *nodeindex.Index {
	x, resource := nodeindex.NewIndex(), q.resource()
	x.SetPlaces(s.tree.Places(len(s.nodes), func(i int) string { return s.nodes[i].object.Name }))
	for i, n := range s.nodes {
		if n.graph == nil {
			continue
		}
		n = n.without(gone)
		used := n.usage(s.Now)
		at := used.AccelIndex(resource)
		if at < 0 {
			continue
		}
		accel := n.graph.Accels[at]
		m := nodeindex.Machine{
			Tables: accel.Tables, Healthy: accel.Healthy, Degraded: accel.Degraded,
			Free: used.FreeAt(at), Held: used.Counted[at], Unknown: used.Foreign[at],
		}
		var pods []int
		for j := range n.here {
			count := n.here[j].Amounts().GetScalarResources()[v1.ResourceName(resource)]
			if count <= 0 {
				continue
			}
			pods = append(pods, int(min(count, nvtopo.MaxGPUs)))
			if _, member := gangrequest.KeyOf(n.here[j].Object); !member {
				m.Singles = true
			}
		}
		x.Put(i, m)
		x.Run(i, pods)
	}
	return x
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
