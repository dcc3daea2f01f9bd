// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
)

// Members is the nodes of a pool, and the nodes that its selector picks but that belong to another pool,
// with that pool's name.
type Members struct {
	Nodes []*v1.Node
	Taken map[string]string
	names map[string]bool // names of Nodes
}

// Has reports whether a node belongs to the pool.
func (m *Members) Has(node string) bool { return m.names[node] }

// MembersOf finds the nodes of a pool according to package membership.
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

// nodeState is the state of a node's free devices.
type nodeState int

const (
	nodeTakesPods nodeState = iota
	nodeInMaintenance
	nodeFailed
)

// stateOf returns the state of a node. A node that is not ready is failed, also if it is cordoned.
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

// forMaintenance reports whether a taint marks maintenance. No standard key exists for it, so any key
// named maintenance matches, with or without a domain.
func forMaintenance(t v1.Taint) bool {
	name := t.Key[strings.LastIndexByte(t.Key, '/')+1:]
	return name == "maintenance" && (t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute)
}
