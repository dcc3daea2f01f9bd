// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
)

// Members are the nodes of a pool, and those that its selector picks too but that are another
// pool's, each with the name of that pool.
type Members struct {
	Nodes []*v1.Node
	Taken map[string]string
	names map[string]bool // of Nodes
}

// Has says whether a node is one of the pool.
func (m *Members) Has(node string) bool { return m.names[node] }

// MembersOf finds the nodes of a pool, as package membership has them.
func MembersOf(pool *v1alpha1.ComputePool, pools []*v1alpha1.ComputePool, nodes []*v1.Node) *Members {
	m := &Members{Taken: map[string]string{}, names: map[string]bool{}}
	for _, n := range nodes {
		if !membership.Selects(pool, n.Labels) {
			continue
		}
		if p := membership.PoolOf(n.Labels, pools); p != nil && p.Name != pool.Name {
			m.Taken[n.Name] = p.Name
			continue
		}
		m.Nodes = append(m.Nodes, n)
		m.names[n.Name] = true
	}
	return m
}

// nodeState is what a node's free devices are.
type nodeState int

const (
	nodeTakesPods nodeState = iota
	nodeInMaintenance
	nodeFailed
)

// stateOf judges a node. One that is not ready is failed, whatever else it is.
func stateOf(node *v1.Node) nodeState {
	ready := false
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			ready = c.Status == v1.ConditionTrue
		}
	}
	switch {
	case !ready:
		return nodeFailed
	case node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, forMaintenance):
		return nodeInMaintenance
	default:
		return nodeTakesPods
	}
}

// forMaintenance: there is no standard key for it. Any whose name is maintenance counts, with or
// without a domain.
func forMaintenance(t v1.Taint) bool {
	name := t.Key[strings.LastIndexByte(t.Key, '/')+1:]
	return name == "maintenance" && (t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute)
}
