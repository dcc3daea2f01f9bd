// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Supplier says what nodes have for members; nodestate's State does.
type Supplier interface {
	Supply(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.Slotter) fabric.Supply
	EmptySupply(d *placement.Demand, info fwk.NodeInfo, slotter *placement.Slotter, used nvtopo.Mask, placed []nodestate.Placed, stay sets.Set[types.UID]) fabric.Supply
	SupplyAfter(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.Slotter,
		used nvtopo.Mask, placed []nodestate.Placed, gone sets.Set[types.UID]) fabric.Supply
	Stamper(nodes []string) *nodestate.Stamper
}

// maxShapes is how many shapes' supplies are remembered.
const maxShapes = 32

// Planner finds places for gangs. It is for one goroutine: cycles come one after the other.
type Planner struct {
	supplier Supplier
	slotter  *placement.Slotter
	plans    uint64
	shapes   map[string]*supplies
	view     *fabricview.View // whose nodes stamper knows
	stamper  *nodestate.Stamper
}

// supplies is what every node has for one shape, as far as it was asked.
type supplies struct {
	view  *fabricview.View
	nodes []supplied // by node of the tree
	used  uint64     // the last plan that asked
}

// supplied is valid while the stamp is the same.
type supplied struct {
	known  bool
	stamp  nodestate.Stamp
	node   *v1.Node
	supply fabric.Supply
}

// NewPlanner returns a Planner that remembers nothing yet.
func NewPlanner(s Supplier) *Planner {
	return &Planner{supplier: s, slotter: placement.NewSlotter(), shapes: map[string]*supplies{}}
}

// Question is what a plan is made from.
type Question struct {
	Turn      *Turn
	View      *fabricview.View
	Nodes     []fwk.NodeInfo
	Snapshot  fwk.NodeInfoLister
	Demand    func(*v1.Pod) (*placement.Demand, error)
	Empty     bool // as if nobody else used anything: the gang's own members keep what they have
	Unrefused bool // what other plugins refused does not count
	// Freest prefers the nodes with the most that is free now, of plans that are equal in level,
	// domains, bands and segments.
	Freest bool
	Closed func(node string) bool // nodes that are closed to these members; nil: none
	// Volumes says where the bound volumes of a pod can be used; nil: nobody knows of any.
	Volumes func(*v1.Pod) []*v1.NodeSelector
	// Cleared, if not nil, says what of a node does not count; nil for all others. Ahead: what
	// is about to be released does not count either.
	Cleared func(node string) *Cleared
	Ahead   bool
}

// Cleared is a node on which some pods or reservations do not count.
type Cleared struct {
	Info fwk.NodeInfo        // a copy without these pods
	Gone sets.Set[types.UID] // they, and others whose reservations do not count

	supplies map[string]fabric.Supply // by shape, as far as it was asked
}

// Answer is where the members of a turn go.
type Answer struct {
	Plan    *fabric.Plan
	Members []nodestate.GangMember // of Turn.Pods, in their order
	Ranked  []*v1.Pod              // the pods of all ranks of the plan
	Ranks   map[types.UID]int      // of Members

	tree     *fabric.Tree
	resource string // whose devices the members get
}

// Plan finds places. The error is a *fabric.UnplaceableError if there is no room now; any other
// says what is wrong with the gang.
func (p *Planner) Plan(q *Question) (*Answer, error) {
	p.plans++
	defer p.forget() // also of plans that fail: they ask nodes, too
	b := &build{p: p, q: q, tree: q.View.Tree, bound: map[int][]*v1.Pod{}}
	if err := b.members(); err != nil {
		return nil, err
	}
	if err := b.wishes(); err != nil {
		return nil, err
	}
	b.supply()
	plan, err := fabric.Place(b.tree, &b.request)
	if err != nil {
		return nil, err
	}
	return b.answer(plan), nil
}

// Depth is the depth of the plan's level; the deeper, the nearer its members are.
func (a *Answer) Depth() int {
	depth, _ := a.tree.DepthOf(a.Plan.Level)
	return depth
}

// forget drops the supplies that were not asked for longest.
func (p *Planner) forget() {
	for len(p.shapes) > maxShapes {
		oldest, at := "", p.plans+1
		for key, s := range p.shapes {
			if s.used < at {
				oldest, at = key, s.used
			}
		}
		delete(p.shapes, oldest)
	}
}

// build is one plan on its way.
type build struct {
	p       *Planner
	q       *Question
	tree    *fabric.Tree
	request fabric.Request
	ranked  []*v1.Pod
	demands []*placement.Demand // of ranked; nil for those that are bound
	ranks   []int               // of ranked, in the gang: a plan leaves out who is not to be placed yet
	shapes  []*shape
	refused map[string]bool   // the keys under which nodes were refused
	infos   []fwk.NodeInfo    // by node of the tree
	cleared []*Cleared        // by node of the tree; nil unless the question has some
	bound   map[int][]*v1.Pod // by node of the tree; those that are there on an empty cluster, too
}

// members lists those that are bound and those to be placed, by their ranks.
func (b *build) members() error {
	b.refused = make(map[string]bool, len(b.q.Turn.Refused))
	for refusal := range b.q.Turn.Refused {
		b.refused[refusal.Shape] = true
	}
	place := make(map[*v1.Pod]bool, len(b.q.Turn.Pods))
	for _, pod := range b.q.Turn.Pods {
		place[pod] = true
	}
	for i, pod := range b.q.Turn.Gang.Members.Live {
		member := fabric.Member{}
		var d *placement.Demand
		switch {
		case pod.Spec.NodeName != "":
			node, ok := b.tree.Node(pod.Spec.NodeName)
			if !ok {
				continue // the node is gone, or too new to be in the tree
			}
			member.Bound, member.Node = true, node
			if b.q.Empty {
				b.bound[node] = append(b.bound[node], pod)
			}
		case place[pod]:
			var err error
			if d, err = b.q.Demand(pod); err != nil {
				return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			if b.q.Ahead {
				ahead := *d
				ahead.Ahead = true
				d = &ahead
			}
			if member.Shape, err = b.shapeOf(pod, d); err != nil {
				return err
			}
		default:
			continue
		}
		b.request.Members = append(b.request.Members, member)
		b.ranked = append(b.ranked, pod)
		b.demands = append(b.demands, d)
		b.ranks = append(b.ranks, b.q.Turn.Gang.Members.Ranks[i])
	}
	return nil
}

func (b *build) shapeOf(pod *v1.Pod, d *placement.Demand) (int, error) {
	volumes, err := b.volumesOf(pod)
	if err != nil {
		return 0, err
	}
	claims := len(claimsOf(pod)) > 0
	at := slices.IndexFunc(b.shapes, func(s *shape) bool {
		return !s.own && s.claims == claims && s.demand.Signature() == d.Signature() && s.volumes.key == volumes.key && sameShape(s.pod, pod)
	})
	var s *shape
	if at >= 0 {
		s = b.shapes[at]
	} else {
		if s, err = newShape(pod, d); err != nil {
			return 0, err
		}
		s.volumes = volumes
	}
	if own := b.ownOf(pod, s); own != nil && len(b.shapes) < maxGangShapes {
		s, at = own, -1
	}
	if at >= 0 {
		return at, nil
	}
	if len(b.shapes) == maxGangShapes {
		return 0, fmt.Errorf("pod %s/%s: its gang has members of more than %d kinds", pod.Namespace, pod.Name, maxGangShapes)
	}
	b.shapes = append(b.shapes, s)
	return len(b.shapes) - 1, nil
}

// wishes sets what the gang asks of the fabric.
func (b *build) wishes() error {
	g := b.q.Turn.Gang
	var levels []gangrequest.Level
	for _, wish := range []string{g.Wishes.Required, g.Wishes.Preferred, g.Wishes.SegmentLevel, g.Wishes.SpreadOver} {
		if depth, ok := b.q.View.DepthOf(wish); ok {
			levels = append(levels, gangrequest.Level{Name: b.tree.LevelName(depth), NodeLabel: wish})
		}
	}
	w, err := g.WishesIn(levels)
	if err != nil {
		return err
	}
	w.Apply(&b.request)
	if size := b.request.SegmentSize; size > 0 && !b.request.SegmentRequired && len(b.request.Members)%size != 0 {
		b.request.SegmentSize = 0 // a replacement, or a member above the minimum
	}
	return nil
}

// supply asks the nodes whose answer is not known.
func (b *build) supply() {
	b.locate()
	if len(b.shapes) == 0 { // all are bound
		b.request.Shapes = []fabric.Shape{{Nodes: make([]fabric.Supply, b.tree.Len())}}
		return
	}
	b.request.Shapes = make([]fabric.Shape, len(b.shapes))
	for i, s := range b.shapes {
		b.request.Shapes[i] = fabric.Shape{GPUs: gpusOf(s.demand), Nodes: b.suppliesOf(s)}
	}
	if len(b.shapes) > 1 {
		b.request.Remaining = b.remaining
	}
}

// locate finds the nodes in the tree.
func (b *build) locate() {
	b.infos = make([]fwk.NodeInfo, b.tree.Len())
	if b.q.Cleared != nil {
		b.cleared = make([]*Cleared, b.tree.Len())
	}
	for _, info := range b.q.Nodes {
		if info.Node() == nil {
			continue
		}
		if node, ok := b.tree.Node(info.Node().Name); ok {
			b.infos[node] = info
			if b.cleared != nil {
				b.cleared[node] = b.q.Cleared(info.Node().Name)
			}
		}
	}
}

func (b *build) suppliesOf(s *shape) []fabric.Supply {
	out := make([]fabric.Supply, len(b.infos))
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
	stamper := b.p.stamperOf(b.q.View)
	for node, info := range b.infos {
		if info == nil || b.excluded(s, info) {
			continue
		}
		if c := b.clearedOn(node); c != nil {
			out[node] = b.askCleared(s, c)
			continue
		}
		x := &known.nodes[node]
		if b.bound[node] != nil {
			x = &supplied{} // no other gang has this answer
		}
		if !x.known || !stamper.Holds(node, &x.stamp, info) {
			stamp := stamper.Stamp(node, info)
			if !x.known || !x.stamp.Same(stamp) || x.node != info.Node() {
				*x = supplied{known: true, node: info.Node(), supply: b.ask(s, node)}
			}
			x.stamp = stamp
		}
		out[node] = x.supply
		if b.q.Freest {
			out[node].Preference = freeFor(s.demand, info)
		}
	}
	return out
}

// excluded reports whether a node takes no members of a shape, whatever it has.
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

// ask asks a node what it has for members of a shape.
func (b *build) ask(s *shape, node int) fabric.Supply {
	info := b.infos[node]
	switch {
	case !s.admits(info, b.q.Empty):
		return fabric.Supply{}
	case b.q.Empty:
		return b.askEmpty(s, node, 0, nil)
	}
	return s.bound(b.p.supplier.Supply(s.demand, info, b.q.Snapshot, b.p.slotter), info.Node())
}

// askEmpty asks a node what it has once nobody is there but members that are bound.
func (b *build) askEmpty(s *shape, node int, used nvtopo.Mask, placed []nodestate.Placed) fabric.Supply {
	var stay sets.Set[types.UID]
	for _, pod := range b.bound[node] {
		if s.alone && sameShape(s.pod, pod) {
			return fabric.Supply{}
		}
		stay = stay.Union(sets.New(pod.UID))
	}
	info := b.infos[node]
	return s.bound(b.p.supplier.EmptySupply(s.demand, info, b.p.slotter, used, placed, stay), info.Node())
}

// clearedOn is what does not count on a node; nil if all does.
func (b *build) clearedOn(node int) *Cleared {
	if b.cleared == nil || b.q.Empty {
		return nil
	}
	return b.cleared[node]
}

// askCleared asks a node on which something does not count.
func (b *build) askCleared(s *shape, c *Cleared) fabric.Supply {
	if known, ok := c.supplies[s.key]; ok {
		return known
	}
	supply := fabric.Supply{}
	if s.admits(c.Info, false) {
		supply = s.bound(b.p.supplier.SupplyAfter(s.demand, c.Info, b.q.Snapshot, b.p.slotter, 0, nil, c.Gone), c.Info.Node())
	}
	if c.supplies == nil {
		c.supplies = map[string]fabric.Supply{}
	}
	c.supplies[s.key] = supply
	return supply
}

// remaining says what a node has for a shape beside members of others.
func (b *build) remaining(shape, node int, used nvtopo.Mask, placed []int) fabric.Supply {
	s, info := b.shapes[shape], b.infos[node]
	if info == nil || b.request.Shapes[shape].Nodes[node].Slots == nil {
		return fabric.Supply{}
	}
	others := make([]nodestate.Placed, 0, len(placed))
	for i, n := range placed {
		if n == 0 {
			continue
		}
		if s.alone && b.shapes[i].key == s.key { // they differ in claims at most
			return fabric.Supply{}
		}
		others = append(others, nodestate.Placed{Demand: b.shapes[i].demand, Count: n})
	}
	if b.q.Empty {
		return b.askEmpty(s, node, used, others)
	}
	var gone sets.Set[types.UID]
	if c := b.clearedOn(node); c != nil {
		info, gone = c.Info, c.Gone
	}
	return s.bound(b.p.supplier.SupplyAfter(s.demand, info, b.q.Snapshot, b.p.slotter, used, others, gone), info.Node())
}

// answer returns the places of the members of the turn.
func (b *build) answer(plan *fabric.Plan) *Answer {
	a := &Answer{Plan: plan, Ranked: b.ranked, Ranks: map[types.UID]int{}, tree: b.tree}
	for rank, pod := range b.ranked {
		d := b.demands[rank]
		if d == nil {
			continue
		}
		if d.HasGPUs() {
			a.resource = d.Resources[0].Name
		}
		a.Ranks[pod.UID] = b.ranks[rank]
		a.Members = append(a.Members, nodestate.GangMember{Pod: pod, Demand: d, Node: b.tree.Name(plan.Nodes[rank]), GPUs: plan.Sets[rank]})
	}
	return a
}

// gpusOf is how many GPUs a member asks for.
func gpusOf(d *placement.Demand) int {
	if !d.HasGPUs() || len(d.Resources) == 0 {
		return 0
	}
	return d.Resources[0].Count
}
