// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Report has the validity of the graph of one node with accelerators, and the related state of its
// object.
type Report struct {
	Node   *v1.Node
	Reason placement.Reason // Fits: it is valid
	// Object is the UID of the node's NodeGPUTopology; empty when there is none.
	Object types.UID
	// Fault describes the unreadable parts of the object; empty if all can be read.
	Fault string
	// Stale is the object's condition of that name; nil if it has none.
	Stale *bool
}

// States of a node with accelerators, as named in the metric.
const (
	Counted   = "counted"
	Stale     = "stale"     // its exporter is silent, or its object cannot be read
	Missing   = "missing"   // there is no graph
	Replaced  = "replaced"  // the graph is of an earlier node of the name
	Malformed = "malformed" // some of the object cannot be read
)

// State returns the report in one word. Unreadable objects come first, since only people can repair them.
func (r *Report) State() string {
	switch {
	case r.Fault != "":
		return Malformed
	case r.Reason == placement.Fits:
		return Counted
	case r.Reason == placement.StaleGraph || r.Reason == placement.UnreadableGraph:
		return Stale
	case r.Reason == placement.NodeReplaced:
		return Replaced
	}
	return Missing
}

// published has the UID of an object and its condition Stale; immutable.
type published struct {
	object types.UID
	stale  *bool
}

func publishedIn(obj *v1alpha1.NodeGPUTopology) *published {
	p := &published{object: obj.UID}
	for i := range obj.Status.Conditions {
		if c := &obj.Status.Conditions[i]; c.Type == v1alpha1.ConditionStale {
			p.stale = new(string(c.Status) == string(v1.ConditionTrue))
		}
	}
	return p
}

// Reports returns the reports of the nodes that have accelerators, according to their graph or to
// allocatable resources of these names. It is for metrics and reports; nothing is decided from it.
func (c *Cache) Reports(nodes []*v1.Node, resources []string) []Report {
	var out []Report
	for _, node := range nodes {
		e := c.Known(node.Name)
		n := e.Node()
		r := Report{Node: node, Reason: c.CheckGraph(e, n, node.UID), Fault: e.Fault()}
		if p := e.published.Load(); p != nil {
			r.Object, r.Stale = p.object, p.stale
		}
		if r.Object != "" && (r.Fault != "" || n != nil && len(n.Accels) > 0) || offers(node, resources) {
			out = append(out, r)
		}
	}
	return out
}

func offers(node *v1.Node, resources []string) bool {
	for _, r := range resources {
		if q := node.Status.Allocatable[v1.ResourceName(r)]; !q.IsZero() {
			return true
		}
	}
	return false
}
