// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// members are the nodes that concern one pool.
type members struct {
	pool   *v1alpha1.ComputePool // nil: it is gone
	own    []*v1.Node
	shared []string   // the names of those that its selector picks, and that are another pool's
	left   []*v1.Node // those cordoned for it that it has no longer
}

// membersOf finds the nodes of the pool of that name. A node that several pools select is in the
// first of them by name, as for their quota.
func membersOf(name string, pools []v1alpha1.ComputePool, nodes []v1.Node) members {
	var m members
	if i := slices.IndexFunc(pools, func(p v1alpha1.ComputePool) bool { return p.Name == name }); i >= 0 {
		m.pool = &pools[i]
	}
	for i := range nodes {
		n := &nodes[i]
		in := poolsOf(n, pools)
		switch {
		case len(in) > 0 && in[0] == name:
			m.own = append(m.own, n)
			continue
		case slices.Contains(in, name):
			m.shared = append(m.shared, n.Name)
		}
		if n.Annotations[AnnotationCordon] == name {
			m.left = append(m.left, n)
		}
	}
	slices.Sort(m.shared)
	slices.SortFunc(m.own, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// poolsOf names the pools that select a node, sorted.
func poolsOf(n *v1.Node, pools []v1alpha1.ComputePool) []string {
	var out []string
	for i := range pools {
		if selector(&pools[i]).Matches(labels.Set(n.Labels)) {
			out = append(out, pools[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

// selector picks a pool's nodes.
func selector(pool *v1alpha1.ComputePool) labels.Selector {
	if len(pool.Spec.NodeSelector) > 0 {
		return labels.SelectorFromSet(pool.Spec.NodeSelector)
	}
	return labels.SelectorFromSet(labels.Set{v1alpha1.LabelPool: pool.Name})
}
