// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// ranking is the nodes as the scheduler compares them for a pod that is placed once some pods are gone.
type ranking struct {
	*podAsk
	gone  map[types.UID]bool
	marks refusals.Marks // of the nodes whose kubelet refuses pods
}

// bestNow finds the node that the scheduler would choose if the pod were placed without the pods that are
// gone, itself among them, and the faster one that it would leave to larger pods. Of nodes between which
// the scheduler draws lots the pod's own is taken. The nodes that come next are returned.
func (r *ranking) bestNow(c *Choice, on *node) []Behind {
	all, best := r.offers()
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
		raw := r.q.profile.Order.Weights.Raw(&x.offer, &best)
		better := chosen == nil || raw > most || raw == most && x.spare < chosen.spare
		if better || raw == most && x.spare == chosen.spare && x.node.object.Name == on.object.Name {
			chosen, most = x, raw
		}
	}
	if chosen == nil {
		return nil
	}
	c.Profile, c.Assumed = r.q.profile.SchedulerNames[0], r.q.profile.Assumed
	c.Best, c.BestNode = chosen.node.set(r.q, r.now), chosen.node.object.Name
	c.Compared, c.NotCompared = len(all), r.notCompared(all)
	if left, ok := best.LeftFaster(); ok {
		n := all[left.Node].node
		c.Left = &allocation.Left{Node: n.object.Name, Model: n.model(r.q.resource()), Millis: 1000 * left.Seconds, PodsOf: left.PodsOf}
	}
	return r.behind(all, &best, chosen)
}

// offers are what the nodes that the pod may run on would give it if the pods that are gone were, and
// the node that leads them. Nodes whose kubelet refuses pods take part if there are no others.
func (r *ranking) offers() ([]offered, nodeindex.Best) {
	machines := r.machines()
	d := nodeindex.Demand{GPUs: r.q.demand.Resources[0].Count, Bytes: r.q.demand.MessageBytes}
	best := nodeindex.NoBest(nodeindex.TermsOf(&d, &r.q.profile.Order, machines.Reserved(d.GPUs, r.q.profile.Order.Headroom)))
	var all, behind []offered
	for i, n := range r.nodes {
		n = n.without(r.gone)
		if n.graph == nil || n.counts != placement.Fits || len(n.obstacles(r.q, r.now)) > 0 {
			continue
		}
		o, ok := placement.Rate(n.usage(r.now), r.q.demand.Request)
		if !ok {
			continue
		}
		o.Preference = r.q.demand.Prefers(n.object)
		x := offered{node: n, offer: o}
		if len(r.levels) > 0 {
			x.spare = machines.Spare(i)
		}
		if r.marks.Has(n.object.Name, r.now) {
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

// RefusedPods is, of a node that is not compared, that its kubelet refused several pods lately. It keeps no
// pod waiting.
const RefusedPods Cause = "RefusedPods"

// notCompared says why the nodes that are not among the offers took no part, were the pods that are gone.
func (r *ranking) notCompared(all []offered) []Refusal {
	taking := map[string]bool{}
	for i := range all {
		taking[all[i].node.object.Name] = true
	}
	var out []judged
	for _, n := range r.nodes {
		if taking[n.object.Name] {
			continue
		}
		n = n.without(r.gone)
		j := judged{node: n, obstacles: n.obstacles(r.q, r.now)}
		switch {
		case len(j.obstacles) > 0:
		case n.graph == nil || n.counts != placement.Fits: // the pod may go there, and nothing tells what it would get
			j.obstacles = []Obstacle{refused(r.q, n.counts, n.why())}
		default:
			j.obstacles = []Obstacle{{Cause: RefusedPods, Text: "its kubelet refused several pods with GPUs lately"}}
		}
		out = append(out, j)
	}
	return refusalsOf(out)
}

// machines are the nodes as the scheduler compares them for the pod, as if the pods that are gone were.
func (r *ranking) machines() *nodeindex.Index {
	x, resource := nodeindex.NewIndex(), r.q.resource()
	x.SetPlaces(r.tree.Places(len(r.nodes), func(i int) string { return r.nodes[i].object.Name }))
	for i, n := range r.nodes {
		if n.graph == nil {
			continue
		}
		n = n.without(r.gone)
		used := n.usage(r.now)
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

// behind are the nodes that come after the chosen one in the scheduler's order.
func (r *ranking) behind(all []offered, best *nodeindex.Best, chosen *offered) (out []Behind) {
	raw := func(x *offered) int64 {
		if !best.Among(&x.offer) {
			return -1
		}
		return r.q.profile.Order.Weights.Raw(&x.offer, best)
	}
	var others []*offered
	for i := range all {
		if &all[i] != chosen {
			others = append(others, &all[i])
		}
	}
	slices.SortFunc(others, func(x, y *offered) int {
		return cmp.Or(cmp.Compare(raw(y), raw(x)), best.Compare(&x.offer, &y.offer), cmp.Compare(x.spare, y.spare),
			strings.Compare(x.node.object.Name, y.node.object.Name))
	})
	for _, x := range others[:min(len(others), maxBehind)] {
		why := ""
		if best.Among(&x.offer) {
			why = lessPoints(raw(chosen), raw(x), chosen.spare < x.spare)
		} else {
			why = notAmong(best, &x.offer, &chosen.offer)
		}
		out = append(out, Behind{x.node.object.Name, x.node.set(r.q, r.now), why})
	}
	return out
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

// lessPoints says why a node that was scored comes after the chosen one.
func lessPoints(chosen, of int64, emptier bool) string {
	switch points := float64(chosen-of) / nodeindex.Point; {
	case points >= 0.01:
		return fmt.Sprintf("score %.2f, %.2f less", float64(of)/nodeindex.Point, points)
	case chosen > of:
		return "as good, and more GPUs are free there, which stay together"
	case emptier:
		return "as good, and more nodes around it are free as a whole, which are left to gangs"
	}
	return "as good: the scheduler draws lots"
}

// notAmong says why a node is not scored.
func notAmong(best *nodeindex.Best, of, chosen *nodeindex.Offer) string {
	switch {
	case best.Reserved.Has(of) && !best.Last:
		return "left to larger pods"
	case of.Preference < best.Preference:
		return "the pod prefers other hardware"
	case best.GPUs > 1:
		return fmt.Sprintf("an all-reduce takes %s there, not %s", millisOf(best, of), millisOf(best, chosen))
	case best.Singles == nodeindex.SinglesSlowGPUs:
		return "its GPU is faster, and left to others"
	}
	return "its GPUs have faster links, which are left to pods of several GPUs"
}

func millisOf(best *nodeindex.Best, o *nodeindex.Offer) string {
	return nvtopo.FormatMillis(1000 * o.Seconds(best.GPUs, best.Bytes))
}
