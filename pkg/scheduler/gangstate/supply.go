// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// supplies has the free capacity of every node for one shape, as far as computed.
type supplies struct {
	view  *fabricview.View
	nodes []supplied // by node of the tree
	used  uint64     // the last plan that used it
}

// supplied is the remembered free capacity of one node; it is valid while the stamp is the same.
type supplied struct {
	known  bool
	stamp  nodestate.Stamp
	node   *v1.Node
	supply fabric.Supply
}

// located are the nodes of one list of the scheduler's snapshot, by node of the tree.
type located struct {
	tree  *fabric.Tree
	nodes []fwk.NodeInfo // the list: while it is kept here, no other one has its address
	infos []fwk.NodeInfo
}

// locate finds the nodes in the tree. The snapshot has the same list, of the same NodeInfos, until a node
// comes or goes.
func (b *build) locate() {
	if at := &b.p.located; at.tree != b.tree || !sameList(at.nodes, b.q.Nodes) {
		*at = located{tree: b.tree, nodes: b.q.Nodes, infos: make([]fwk.NodeInfo, b.tree.Len())}
		for _, info := range b.q.Nodes {
			if info.Node() == nil {
				continue
			}
			if node, ok := b.tree.Node(info.Node().Name); ok {
				at.infos[node] = info
			}
		}
	}
	b.infos = b.p.located.infos
	if b.q.Cleared == nil {
		return
	}
	b.cleared = make([]*Cleared, b.tree.Len())
	for node, info := range b.infos {
		if info != nil && info.Node() != nil {
			b.cleared[node] = b.q.Cleared(info.Node().Name)
		}
	}
}

// sameList reports whether two lists are one.
func sameList(a, b []fwk.NodeInfo) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// knownOf returns the remembered supplies for a shape.
func (b *build) knownOf(s *shape) *supplies {
	key := s.key
	switch {
	case b.q.Empty:
		key = "empty " + key
	case b.q.Ahead:
		key = "ahead " + key
	}
	known := b.p.shapes[key]
	if known == nil || known.view != b.q.View {
		known = &supplies{view: b.q.View, nodes: make([]supplied, len(b.infos))}
		b.p.shapes[key] = known
	}
	known.used = b.p.plans
	return known
}

func (b *build) suppliesOf(s *shape) []fabric.Supply {
	out := make([]fabric.Supply, len(b.infos))
	known := b.knownOf(s)
	stamper := b.p.stamperOf(b.q.View)
	excludes := b.q.Closed != nil || len(b.q.Turn.Refused) > 0 || len(s.volumes.at) > 0
	for node, info := range b.infos {
		if info == nil || info.Node() == nil || excludes && b.excluded(s, info) {
			continue
		}
		if c := b.clearedOn(node); c != nil {
			out[node] = b.beside(s, c.Info, nil, c.Gone, b.askCleared(s, c))
			continue
		}
		x := &known.nodes[node]
		if b.bound[node] != nil {
			x = &supplied{} // this result is only valid for this gang
		}
		if !x.known || !stamper.Holds(node, &x.stamp, info) {
			b.renew(x, stamper.Stamp(node, info), s, node)
		}
		out[node] = b.beside(s, info, nil, nil, x.supply)
		if b.q.Freest {
			out[node].Preference = freeFor(s.Demand, info)
		}
	}
	return out
}

// renew computes the supply of a node again, unless its state is that of the last stamp.
func (b *build) renew(x *supplied, stamp nodestate.Stamp, s *shape, node int) {
	if object := b.infos[node].Node(); !x.known || !x.stamp.Same(stamp) || x.node != object {
		*x = supplied{known: true, node: object, supply: b.ask(s, node)}
	}
	x.stamp = stamp
}

// excluded reports whether a node takes no members of a shape, independent of its free capacity.
func (b *build) excluded(s *shape, info fwk.NodeInfo) bool {
	name := info.Node().Name
	if b.q.Closed != nil && b.q.Closed(name) || !s.volumes.reach(info.Node()) {
		return true
	}
	at, refused := b.q.Turn.Refused[Refusal{s.refusals, name}]
	return refused && !b.q.Unrefused && at == info.GetGeneration()
}

// stamperOf returns the Stamper of a view's nodes, and begins a plan.
func (p *Planner) stamperOf(view *fabricview.View) *nodestate.Stamper {
	if p.view != view {
		names := make([]string, view.Tree.Len())
		for i := range names {
			names[i] = view.Tree.Name(i)
		}
		p.view, p.stamper = view, p.supplier.Stamper(names)
	}
	p.stamper.Begin()
	return p.stamper
}

// ask computes the supply of a node for members of a shape.
func (b *build) ask(s *shape, node int) fabric.Supply {
	info := b.infos[node]
	switch {
	case !s.admits(info, b.q.Empty):
		return fabric.Supply{}
	case b.q.Empty:
		return b.askEmpty(s, node, 0, nil)
	}
	return s.Bounded(b.p.supplier.Supply(s.Demand, info, b.q.Snapshot, b.p.slotter), info.Node())
}

// askEmpty computes the supply of a node with only the gang's bound members on it.
func (b *build) askEmpty(s *shape, node int, used nvtopo.Mask, placed []nodestate.Placed) fabric.Supply {
	var stay sets.Set[types.UID]
	for _, pod := range b.bound[node] {
		if s.Alone && placement.SameClass(s.Pod, pod) {
			return fabric.Supply{}
		}
		stay = stay.Union(sets.New(pod.UID))
	}
	info := b.infos[node]
	return s.Bounded(b.p.supplier.EmptySupply(s.Demand, info, b.p.slotter, used, placed, stay), info.Node())
}

// after computes the supply of a node for a shape beside others, once some pods are gone.
func (p *Planner) after(q *Question, s *shape, info fwk.NodeInfo, used nvtopo.Mask, others []placement.Placed, gone sets.Set[types.UID]) fabric.Supply {
	return s.Bounded(p.supplier.SupplyAfter(s.Demand, info, q.Snapshot, p.slotter, used, others, gone), info.Node())
}

// clearedOn returns the ignored pods of a node; nil if there are none.
func (b *build) clearedOn(node int) *Cleared {
	if b.cleared == nil || b.q.Empty {
		return nil
	}
	return b.cleared[node]
}

// askCleared computes the supply of a node with ignored pods.
func (b *build) askCleared(s *shape, c *Cleared) fabric.Supply {
	if known, ok := c.supplies[s.key]; ok {
		return known
	}
	supply := fabric.Supply{}
	if s.admits(c.Info, false) {
		supply = b.p.after(b.q, s, c.Info, 0, nil, c.Gone)
	}
	if c.supplies == nil {
		c.supplies = map[string]fabric.Supply{}
	}
	c.supplies[s.key] = supply
	return supply
}

// supply returns the supply of a node for a shape, beside members of others.
func (b *build) supply(shape, node int, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
	for len(b.supplies) <= shape {
		b.supplies = append(b.supplies, b.suppliesOf(b.shapes[len(b.supplies)]))
	}
	if len(others) == 0 {
		return b.supplies[shape][node]
	}
	s, info := b.shapes[shape], b.infos[node]
	if b.q.Empty {
		return b.askEmpty(s, node, used, others)
	}
	var gone sets.Set[types.UID]
	if c := b.clearedOn(node); c != nil {
		info, gone = c.Info, c.Gone
	}
	return b.beside(s, info, others, gone, b.p.after(b.q, s, info, used, others, gone))
}
