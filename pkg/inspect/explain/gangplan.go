// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// ask is a gang as the planner is asked for its place in a cluster.
type ask struct {
	*cluster
	gang   *gangrequest.Gang
	wishes gangrequest.Wishes
	shapes []*question
	of     []int               // shape of each member of Live; -1: it is placed, or not needed
	asks   []*placement.Demand // of each member of Live that has a shape
	lacked int                 // members that are missing and taken to be there, see completed
}

// askOf reads what the members that wait ask for.
func (c *cluster) askOf(g *gangrequest.Gang, group *schedulingv1alpha1.PodGroup) (*ask, error) {
	a := &ask{cluster: c, gang: g, wishes: g.Wishes, of: make([]int, len(g.Members.Live)), asks: make([]*placement.Demand, len(g.Members.Live))}
	for i := range a.of {
		a.of[i] = -1
	}
	needed, extra := g.Members.Split(g.Minimum, placed)
	if len(needed) == 0 {
		needed = extra
	}
	waiting := slices.DeleteFunc(slices.Clone(g.Members.Live), placed)
	shapes := map[string]int{}
	for _, i := range needed {
		q, err := c.question(g.Members.Live[i])
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", g.Members.Live[i].Name, err)
		}
		at, known := shapes[q.shape.Class]
		if !known {
			if q.members = waiting; group != nil {
				q.group = group.Annotations
			}
			at = len(a.shapes)
			shapes[q.shape.Class], a.shapes = at, append(a.shapes, q)
		}
		a.of[i], a.asks[i] = at, q.demand
	}
	return a, nil
}

// alike reports whether all members that are there ask for the same, those with a node included.
func (a *ask) alike() bool {
	return len(a.shapes) == 1 && !slices.ContainsFunc(a.gang.Members.Live, func(p *v1.Pod) bool {
		q, err := a.question(p)
		return err != nil || q.shape.Class != a.shapes[0].shape.Class
	})
}

// completed returns the gang with its missing members added: like the others, on the ranks that are free.
func (a *ask) completed() *ask {
	out, gang := *a, *a.gang
	m := &gang.Members
	m.Live, m.Ranks = slices.Clone(m.Live), slices.Clone(m.Ranks)
	out.gang, out.of, out.asks, out.lacked = &gang, slices.Clone(a.of), slices.Clone(a.asks), gang.Minimum-m.Count()
	for rank := 0; m.Count() < gang.Minimum; rank++ {
		if at, taken := slices.BinarySearch(m.Ranks, rank); !taken {
			m.Live, m.Ranks = slices.Insert(m.Live, at, a.shapes[0].pod), slices.Insert(m.Ranks, at, rank)
			out.of, out.asks = slices.Insert(out.of, at, 0), slices.Insert(out.asks, at, a.shapes[0].demand)
		}
	}
	return &out
}

// resource is that of the first member that asks for devices; empty if none does.
func (a *ask) resource() string {
	for _, q := range a.shapes {
		if q.demand.HasGPUs() {
			return q.resource()
		}
	}
	return ""
}

// gpus is how many devices of a resource the members ask that wait.
func (a *ask) gpus(resource string) (total int) {
	for _, shape := range a.of {
		if shape >= 0 && resource != "" && a.shapes[shape].resource() == resource {
			total += a.shapes[shape].demand.Resources[0].Count
		}
	}
	return total
}

// in is the same gang in another cluster.
func (a *ask) in(c *cluster) *ask {
	other := *a
	other.cluster = c
	return &other
}

// plan asks the planner with what the nodes have now.
func (a *ask) plan() (*fabric.Plan, error) {
	levels := *a.gang
	levels.Wishes = a.wishes
	wishes, err := levels.WishesIn(a.levels)
	if err != nil {
		return nil, err
	}
	g := placement.Gang{Wishes: wishes}
	for _, q := range a.shapes {
		g.Shapes = append(g.Shapes, &q.shape)
	}
	for i, p := range a.gang.Members.Live {
		m := placement.Member{Pod: p}
		m.Node, m.Bound = a.tree.Node(p.Spec.NodeName)
		switch {
		case m.Bound:
			if d, err := a.demandOf(p); err == nil {
				m.Demand, m.Graph = d, a.nodes[m.Node].graph
			}
		case a.of[i] >= 0:
			m.Node, m.Shape, m.Demand = 0, a.of[i], a.asks[i]
		default:
			continue
		}
		g.Members = append(g.Members, m)
	}
	return g.Plan(a.tree, func(shape, at int, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
		return a.supply(a.nodes[at], a.shapes[shape], used, others)
	})
}

// supply is what a node has for members of one shape, beside others.
func (a *ask) supply(n *node, q *question, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
	if !q.shape.Eligible.Allows(n.object) {
		return fabric.Supply{}
	}
	graph := n.graph
	if n.counts != placement.Fits {
		graph = nil
	}
	return q.shape.Bounded(a.slotter.Supply(q.demand, graph, n.room(), a.now, used, others, func(given []usage.Reservation) *usage.Usage {
		return n.beside(a.now, given)
	}), n.object)
}

// without is the gang without some wishes, each of the members that have it; false if what is left cannot be
// read. Members that ask the same then have one shape, as the scheduler reads them.
func (a *ask) without(dropped []wish) (*ask, bool) {
	less := *a
	less.shapes, less.of, less.asks = nil, slices.Clone(a.of), make([]*placement.Demand, len(a.of))
	to, classes := make([]int, len(a.shapes)), map[string]int{}
	for i, q := range a.shapes {
		relaxed, err := a.question(q.without(dropped))
		if err != nil {
			return nil, false
		}
		at, known := classes[relaxed.shape.Class]
		if !known {
			at = len(less.shapes)
			classes[relaxed.shape.Class], less.shapes = at, append(less.shapes, relaxed)
		}
		to[i] = at
	}
	for i, shape := range a.of {
		if shape >= 0 {
			less.of[i], less.asks[i] = to[shape], less.shapes[to[shape]].demand
		}
	}
	for _, w := range dropped {
		if w.gang != nil {
			w.gang(&less.wishes)
		}
	}
	return &less, true
}

// fitsAsking reports whether the gang would be placed without some wishes.
func (a *ask) fitsAsking(dropped []wish) bool {
	less, ok := a.without(dropped)
	if !ok {
		return false
	}
	_, err := less.plan()
	return err == nil
}

func placed(p *v1.Pod) bool { return p.Spec.NodeName != "" }

// roomOf says how many members fit, by model where that matters.
func roomOf(room *fabric.UnplaceableError) string {
	if len(room.Models) == 0 {
		most := ""
		if room.AtMost {
			most = "at most "
		}
		return fmt.Sprintf("room for %s%d of %s", most, room.Have, counted(room.Want, "member"))
	}
	text := "members get one model, of which there is room for " + room.Room()
	if room.MixedFits {
		text += "; " + gangrequest.MixedModelsKey + ": true would fit"
	}
	return text
}

func nodesOf(p *fabric.Plan) map[int]bool {
	out := map[int]bool{}
	for _, at := range p.Nodes {
		out[at] = true
	}
	return out
}
