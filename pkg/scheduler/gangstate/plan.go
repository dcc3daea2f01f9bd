// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// Supplier provides the free capacity of nodes for members; nodestate's State does.
type Supplier interface {
	Supply(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.SlotCounter) fabric.Supply
	EmptySupply(d *placement.Demand, info fwk.NodeInfo, slotter *placement.SlotCounter, used nvtopo.Mask, placed []nodestate.Placed, stay sets.Set[types.UID]) fabric.Supply
	SupplyAfter(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.SlotCounter,
		used nvtopo.Mask, placed []nodestate.Placed, gone sets.Set[types.UID]) fabric.Supply
	ReservedBeside(info fwk.NodeInfo, name v1.ResourceName, gone sets.Set[types.UID]) int64
	Stamper(nodes []string) *nodestate.Stamper
	Node(name string) *usage.Node // the known state of its GPUs; nil if unknown
}

// maxShapes is how many shapes' supplies are remembered.
const maxShapes = 32

// Planner finds places for gangs. It must be used by one goroutine only: cycles come one after the other.
type Planner struct {
	supplier Supplier
	slotter  *placement.SlotCounter
	plans    uint64
	shapes   map[string]*supplies
	view     *fabricview.View // the view whose nodes stamper knows
	stamper  *nodestate.Stamper
	located  located
	failed   *build // the last plan, if it was for the present and found no room; for Short
}

// NewPlanner returns a Planner that remembers nothing yet.
func NewPlanner(s Supplier) *Planner {
	return &Planner{supplier: s, slotter: placement.NewSlotCounter(), shapes: map[string]*supplies{}}
}

// Question has the inputs of a plan.
type Question struct {
	Turn      *Turn
	View      *fabricview.View
	Nodes     []fwk.NodeInfo
	Snapshot  fwk.NodeInfoLister
	Demand    func(*v1.Pod) (*placement.Demand, error)
	Empty     bool // as if no other pods used anything: the gang's own members keep their devices
	Unrefused bool // the refusals of other plugins are ignored
	// AnyModel: the members get GPUs of any model, independent of running members; those of a gang without
	// running members get one model, independent of a promise.
	AnyModel bool
	// Freest prefers the nodes with the most free now, among plans that are equal in level, domains, bands
	// and segments.
	Freest bool
	Closed func(node string) bool // nodes that these members do not get; nil: none
	// Kept are the places kept from these members, by node; see Turn.KeptOut.
	Kept map[string][]*candidates.Kept
	// Volumes returns where the bound volumes of a pod can be used; nil: none are known.
	Volumes func(*v1.Pod) []*v1.NodeSelector
	// Cleared, if not nil, returns the pods of a node that are ignored; nil for all other nodes. Ahead:
	// devices that are about to be released are ignored, too.
	Cleared func(node string) *Cleared
	Ahead   bool
}

// Cleared is a node on which some pods or reservations are ignored.
type Cleared struct {
	Info fwk.NodeInfo        // a copy without these pods
	Gone sets.Set[types.UID] // they, and others whose reservations are ignored

	supplies map[string]fabric.Supply // by shape, as far as computed
}

// Answer has the places of the members of a turn.
type Answer struct {
	Plan    *fabric.Plan
	Members []nodestate.GangMember // of Turn.Pods, in their order
	Ranked  []*v1.Pod              // the pods of all ranks of the plan
	Ranks   map[types.UID]int      // of Members

	shapes       []*shape // of Members
	tree         *fabric.Tree
	resource     string  // the resource whose devices the members get
	messageBytes float64 // of the all-reduce that is estimated
}

// Plan finds places. The error is a *fabric.UnplaceableError if there is no room now; any other describes
// a fault of the gang.
func (p *Planner) Plan(q *Question) (*Answer, error) {
	p.plans++
	p.failed = nil
	defer p.forget() // also of plans that fail: they compute supplies, too
	b := &build{p: p, q: q, tree: q.View.Tree, bound: map[int][]*v1.Pod{}}
	if err := b.members(); err != nil {
		return nil, err
	}
	b.locate()
	var err error
	if b.gang.Wishes, err = wishesIn(q.Turn.Gang, q.View); err != nil {
		return nil, err
	}
	b.gang.Wishes.MixedModels = b.gang.Wishes.MixedModels || q.AnyModel && !q.Turn.Fresh
	b.gang.AnyModel = q.AnyModel
	plan, err := b.gang.Plan(b.tree, b.supply)
	if err != nil {
		if !q.Empty && !q.Ahead {
			p.failed = b
		}
		return nil, err
	}
	return b.answer(plan), nil
}

// Depth returns the depth of the plan's level; the deeper, the nearer its members are.
func (a *Answer) Depth() int {
	depth, _ := a.tree.DepthOf(a.Plan.Level)
	return depth
}

// BetterThan reports whether the answer of an empty cluster is worth waiting for.
func (a *Answer) BetterThan(now *Answer) bool { return a.tree.Better(a.Plan, now.Plan) }

// forget drops the supplies that were not used for longest.
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

// build is the state of computing one plan.
type build struct {
	p        *Planner
	q        *Question
	tree     *fabric.Tree
	gang     placement.Gang    // the requests of bound members are present if others are to be placed
	ranks    []int             // of gang.Members, in the gang: a plan leaves out members that are not to be placed yet
	shapes   []*shape          // of gang.Shapes
	supplies [][]fabric.Supply // by shape, as far as computed, and node of the tree
	refused  map[string]bool   // the keys under which nodes were refused
	infos    []fwk.NodeInfo    // by node of the tree
	cleared  []*Cleared        // by node of the tree; nil unless the question has some
	bound    map[int][]*v1.Pod // by node of the tree; those present on an empty cluster, too
}

// members lists the bound members and those to be placed, by their ranks.
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
		member := placement.Member{Pod: pod}
		switch {
		case pod.Spec.NodeName != "":
			node, ok := b.tree.Node(pod.Spec.NodeName)
			if !ok {
				continue // the node is gone, or too new to be in the tree
			}
			member.Bound, member.Node = true, node
			if d, err := b.q.Demand(pod); err == nil && len(place) > 0 {
				member.Demand, member.Graph = d, b.p.supplier.Node(pod.Spec.NodeName)
			}
			if b.q.Empty {
				b.bound[node] = append(b.bound[node], pod)
			}
		case place[pod]:
			d, err := b.q.Demand(pod)
			if err != nil {
				return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			if b.q.Ahead {
				ahead := *d
				ahead.Ahead = true
				d = &ahead
			}
			member.Demand = d
			if member.Shape, err = b.shapeOf(pod, d); err != nil {
				return err
			}
		default:
			continue
		}
		b.gang.Members = append(b.gang.Members, member)
		b.ranks = append(b.ranks, b.q.Turn.Gang.Members.Ranks[i])
	}
	return nil
}

func (b *build) shapeOf(pod *v1.Pod, d *placement.Demand) (int, error) {
	volumes, err := b.volumesOf(pod)
	if err != nil {
		return 0, err
	}
	claims, signature := len(claimsOf(pod)) > 0, d.Signature()
	at := slices.IndexFunc(b.shapes, func(s *shape) bool {
		return !s.own && s.claims == claims && s.signature == signature && s.volumes.key == volumes.key && placement.SameClass(s.Pod, pod)
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
	b.shapes, b.gang.Shapes = append(b.shapes, s), append(b.gang.Shapes, &s.Shape)
	return len(b.shapes) - 1, nil
}

// answer returns the places of the members of the turn.
func (b *build) answer(plan *fabric.Plan) *Answer {
	a := &Answer{Plan: plan, Ranks: map[types.UID]int{}, tree: b.tree, messageBytes: b.gang.Wishes.Message()}
	for rank := range b.gang.Members {
		m := &b.gang.Members[rank]
		if a.Ranked = append(a.Ranked, m.Pod); m.Bound {
			continue
		}
		if m.Demand.HasGPUs() {
			a.resource = m.Demand.Resources[0].Name
		}
		a.Ranks[m.Pod.UID] = b.ranks[rank]
		a.shapes = append(a.shapes, b.shapes[m.Shape])
		a.Members = append(a.Members, nodestate.GangMember{Pod: m.Pod, Demand: m.Demand, Node: b.tree.Name(plan.Nodes[rank]), GPUs: plan.Sets[rank]})
	}
	return a
}

// gpusOf returns how many GPUs a member requests.
func gpusOf(d *placement.Demand) int {
	if !d.HasGPUs() || len(d.Resources) == 0 {
		return 0
	}
	return d.Resources[0].Count
}
