// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
)

// members are the nodes that concern one pool.
type members struct {
	pool   *v1alpha1.ComputePool // nil: it is gone
	own    []*v1.Node
	shared []string   // names of nodes that its selector picks, but that belong to another pool
	left   []*v1.Node // nodes cordoned for it that it no longer has
}

// membersOf finds the nodes of the pool of that name according to package membership.
func membersOf(name string, pools []*v1alpha1.ComputePool, nodes []v1.Node) members {
	var m members
	if i := slices.IndexFunc(pools, func(p *v1alpha1.ComputePool) bool { return p.Name == name }); i >= 0 {
		m.pool = pools[i]
	}
	for i := range nodes {
		n := &nodes[i]
		if in := membership.PoolOf(n.Labels, pools); in != nil && in.Name == name {
			m.own = append(m.own, n)
			continue
		}
		if m.pool != nil && membership.Selects(m.pool, n.Labels) {
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
