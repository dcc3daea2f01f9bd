// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
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

// ideal is the mended scene with nothing on its nodes but the pods of DaemonSets and those that stay.
func (c *cluster) ideal(stay map[types.UID]bool) *cluster {
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
