// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Report is how one node with accelerators stands: whether its graph counts, and what
// its object says of that.
type Report struct {
	Node   *v1.Node
	Reason placement.Reason // Fits: it counts
	// Object is the UID of the node's NodeGPUTopology; empty when there is none.
	Object types.UID
	// Fault is what cannot be read of the object; empty when all can.
	Fault string
	// Stale is what the object's condition of that name says; nil when it has none.
	Stale *bool
}

// Standing names of the metric of nodes by state.
const (
	standsCounted   = "counted"
	standsStale     = "stale"
	standsMissing   = "missing"
	standsReplaced  = "replaced"
	standsMalformed = "malformed"
)

// state is the report in a word. What cannot be read is named first, since only
// people can mend it.
func (r *Report) state() string {
	switch {
	case r.Fault != "":
		return standsMalformed
	case r.Reason == placement.Fits:
		return standsCounted
	case r.Reason == placement.StaleGraph || r.Reason == placement.UnreadableGraph:
		return standsStale
	case r.Reason == placement.NodeReplaced:
		return standsReplaced
	}
	return standsMissing
}

// published is what an object says about itself beside its graph; immutable.
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

// Reports tells of every node that has accelerators, by its allocatable resources or by
// its graph. It is for metrics and reports; nothing is decided by it.
func (s *State) Reports() []Report {
	if s.stores.nodes == nil {
		return nil
	}
	nodes, err := s.stores.nodes.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing nodes failed")
		return nil
	}
	s.index.mu.Lock()
	resources := s.index.resources.UnsortedList()
	s.index.mu.Unlock()
	var out []Report
	for _, node := range nodes {
		r := s.report(node)
		if r.Object != "" && (r.Fault != "" || s.hasAccels(node.Name)) || offers(node, resources) {
			out = append(out, r)
		}
	}
	return out
}

func (s *State) hasAccels(node string) bool {
	n := s.Node(node)
	return n != nil && len(n.Accels) > 0
}

func offers(node *v1.Node, resources []string) bool {
	for _, r := range resources {
		if q := node.Status.Allocatable[v1.ResourceName(r)]; !q.IsZero() {
			return true
		}
	}
	return false
}

func (s *State) report(node *v1.Node) Report {
	r := Report{Node: node, Reason: s.Standing(node)}
	x := s.cells.get(node.Name)
	if x == nil {
		return r
	}
	r.Fault = x.topology.Fault()
	if p := x.topology.published.Load(); p != nil {
		r.Object, r.Stale = p.object, p.stale
	}
	return r
}
