// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// NodesNear returns the nodes of the bound members of the gang that a pod, which is no member, requests
// to be near to; nil if there are none, or it names no gang. If several gangs have the name, it is the
// first by source, as for members.
func (g *Gangs) NodesNear(pod *v1.Pod) (nodes []string) {
	keys, ok := gangrequest.NearOf(pod)
	if !ok {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		x := g.queue.gangs[key]
		if x == nil {
			continue
		}
		for _, member := range x.pods {
			if member.Spec.NodeName != "" && gangrequest.StandingOf(member) == gangrequest.Live {
				nodes = append(nodes, member.Spec.NodeName)
			}
		}
		return nodes
	}
	return nil
}

// Near returns the nodes with room for a pod in the smallest domains that have a gang's nodes and such a
// node: a node is the smallest if all of the gang are on one. It is nil if only the whole cluster has
// room. The question needs no turn.
func (p *Planner) Near(q *Question, pod *v1.Pod, nodes []string) (near []string, err error) {
	p.plans++
	defer p.forget()
	d, err := q.Demand(pod)
	if err != nil {
		return nil, err
	}
	s, err := newShape(pod, d)
	if err != nil {
		return nil, err
	}
	b := &build{p: p, q: q, tree: q.View.Tree}
	if s.volumes, err = b.volumesOf(pod); err != nil {
		return nil, err
	}
	b.locate()
	supply := b.suppliesOf(s)
	var of []int
	depth := b.tree.Depth() + 1
	for _, name := range nodes {
		if node, ok := b.tree.Node(name); ok {
			of = append(of, node)
			depth = min(depth, max(b.tree.Common(of[0], node), b.tree.Depth()))
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	for ; depth > 0; depth-- {
		for node := range supply {
			if supply[node].Members() > 0 && b.within(depth, node, of) {
				near = append(near, b.tree.Name(node))
			}
		}
		if len(near) > 0 {
			return near, nil
		}
	}
	return nil, nil
}

// within reports whether a node is in one domain of the depth with one of others.
func (b *build) within(depth, node int, of []int) bool {
	for _, o := range of {
		if b.tree.Common(node, o) >= depth {
			return true
		}
	}
	return false
}
