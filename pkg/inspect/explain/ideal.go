// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// mended is the scene with no node cordoned or not ready, and with every graph there is.
func (c *cluster) mended() *cluster {
	out := *c
	out.nodes, out.byName = make([]*node, len(c.nodes)), make(map[string]*node, len(c.nodes))
	for i, n := range c.nodes {
		e := *n
		e.object = n.object.DeepCopy()
		e.object.Spec.Unschedulable = false
		e.object.Spec.Taints = slices.DeleteFunc(e.object.Spec.Taints, func(t v1.Taint) bool { return strings.HasPrefix(t.Key, nodeConditionTaints) })
		if e.graph != nil && e.counts == placement.StaleGraph {
			e.counts = placement.Fits
		}
		out.nodes[i], out.byName[e.object.Name] = &e, &e
	}
	return &out
}

// bare is the mended scene with nothing on its nodes but the pods of DaemonSets and those that stay.
func (c *cluster) bare(stay map[types.UID]bool) *cluster {
	out := c.mended()
	for i, n := range out.nodes {
		e := n.emptied()
		for _, p := range n.listed {
			if stay[p.Object.UID] && !belongsHere(p.Object) {
				e.here = append(e.here, p)
			}
		}
		e.listed = e.here
		out.nodes[i], out.byName[e.object.Name] = e, e
	}
	return out
}

// ideal is the bare scene with all GPUs healthy.
func (c *cluster) ideal(stay map[types.UID]bool) *cluster {
	out := *c
	out.nodes = slices.Clone(c.nodes)
	for i, n := range out.nodes {
		out.nodes[i] = n.healed()
	}
	return out.bare(stay)
}

// healed is the node with all GPUs of its graph healthy: itself if they are.
func (n *node) healed() *node {
	if n.graph == nil || !slices.ContainsFunc(n.graph.Accels, func(a *usage.Accel) bool { return a.Unhealthy() != 0 }) {
		return n
	}
	out := *n
	out.graph, out.object, out.used = n.graph.Healed(), n.object.DeepCopy(), nil
	for i, a := range n.graph.Accels { // kubelet offers fewer while some are not
		q := out.object.Status.Allocatable[v1.ResourceName(a.Resource)]
		if offers, whole := int(q.Value()), out.graph.Accels[i].Healthy.Len(); offers < whole {
			out.object.Status.Allocatable[v1.ResourceName(a.Resource)] = *resource.NewQuantity(int64(min(offers+a.Unhealthy().Len(), whole)), resource.DecimalSI)
		}
	}
	return &out
}

// unhealthy is the obstacle that GPUs of the resource that is asked are unhealthy; it says which, and why.
func (n *node) unhealthy(q *question) Obstacle {
	o := Obstacle{Cause: UnhealthyGPUs, Text: "GPUs are unhealthy", kind: ofFault}
	i := n.accelOf(q)
	if i < 0 {
		return o
	}
	var named []string
	g := n.graph.Accels[i].Graph
	for at := range n.graph.Accels[i].Unhealthy().All() {
		named = append(named, fmt.Sprintf("GPU %d, %s", g.GPUs[at].Index, g.GPUs[at].Unhealthy))
	}
	verb := "are"
	if len(named) == 1 {
		verb = "is"
	}
	o.Detail = fmt.Sprintf("%d of %s %s unhealthy: %s", len(named), counted(g.Len(), "GPU"), verb, strings.Join(named, "; "))
	return o
}

// cure tells what of a node's obstacles are unhealthy GPUs: what the empty node lacks that it would not lack if all
// were healthy. lasting are the obstacles of the empty node; those that a repair would leave are returned.
func (x *podAsk) cure(j *judged, lasting []Obstacle) []Obstacle {
	healed := j.healed()
	if healed == j.node {
		return lasting
	}
	left, now := healed.emptied().obstacles(x.q, x.now), healed.obstacles(x.q, x.now)
	has := func(all []Obstacle, o Obstacle) bool {
		return slices.ContainsFunc(all, func(l Obstacle) bool { return l.kind == ofPods && l.Cause == o.Cause })
	}
	if !slices.ContainsFunc(lasting, func(o Obstacle) bool { return o.kind == ofPods && !has(left, o) }) {
		return lasting
	}
	j.obstacles = slices.DeleteFunc(j.obstacles, func(o Obstacle) bool { return has(lasting, o) && !has(left, o) && !has(now, o) })
	j.obstacles = append(j.obstacles, j.unhealthy(x.q))
	return left
}

// hidden are the nodes that offer as many devices as the pod asks, and that nothing keeps from taking it but
// faults, or what the cluster does not lack.
func (x *podAsk) hidden() (out []judged) {
	for _, n := range x.nodes {
		if !x.q.demand.HasGPUs() || n.offers(x.q.resource()) < x.q.demand.Resources[0].Count || !x.q.shape.Eligible.Allows(n.object) {
			continue
		}
		j := judged{node: n, obstacles: n.obstacles(x.q, x.now)}
		for i := range j.obstacles {
			if o := &j.obstacles[i]; !ofCluster(o.Cause) {
				o.kind = ofFault
			}
		}
		if len(j.obstacles) > 0 && j.is(ofFault) {
			out = append(out, j)
		}
	}
	return out
}
