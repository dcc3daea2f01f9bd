// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Gang is the planner's input for one gang.
type Gang struct {
	Shapes  []*Shape
	Members []Member           // in the order of their ranks
	Wishes  gangrequest.Wishes // with the names that the fabric gives to its levels
	// AnyModel: members get GPUs of any model, whatever the running members have and whatever was promised.
	AnyModel bool
}

// Member is a pod of a gang. A bound one has a node; the others wait for one.
type Member struct {
	Pod    *v1.Pod
	Demand *Demand // nil: the request of a bound one is not known
	Shape  int     // index in Gang.Shapes, of one that waits
	Bound  bool
	Node   int         // of the tree, of a bound one
	Graph  *usage.Node // of that node; nil: its GPUs are not known
}

// SupplyOf returns the free capacity of a node of the fabric's tree for members of a shape, when the
// members in beside are placed on the node too and have the GPUs in used. It must be a function of its
// arguments.
type SupplyOf func(shape, node int, used nvtopo.Mask, beside []Placed) fabric.Supply

// Plan finds nodes for the members that wait. The error is a *fabric.UnplaceableError if there is no room
// now; any other is about the gang itself. The scheduler, explain and Kueue's admission check all plan
// with it, each with its own view of the nodes.
func (g *Gang) Plan(tree *fabric.Tree, supply SupplyOf) (*fabric.Plan, error) {
	return fabric.Place(tree, g.request(tree.Len(), supply))
}

// request translates the gang for the planner of the fabric. Segments number the members of their shape
// from 0.
func (g *Gang) request(nodes int, supply SupplyOf) *fabric.Request {
	r, kinds := &fabric.Request{}, map[string]int{"": 0} // by GPUKey
	for i, s := range g.Shapes {
		key := s.Demand.GPUKey()
		if _, known := kinds[key]; !known {
			kinds[key] = len(kinds)
		}
		shape := fabric.Shape{Kind: kinds[key], Nodes: make([]fabric.Supply, nodes)}
		if s.Demand.HasGPUs() {
			shape.GPUs = s.Demand.Resources[0].Count
		}
		for node := range nodes {
			shape.Nodes[node] = supply(i, node, 0, nil)
		}
		r.Shapes = append(r.Shapes, shape)
	}
	if len(g.Shapes) == 0 { // all are bound
		r.Shapes = []fabric.Shape{{Nodes: make([]fabric.Supply, nodes)}}
	}
	if len(g.Shapes) > 1 {
		r.Remaining = g.remaining(r, supply)
	}
	for i := range g.Members {
		m := &g.Members[i]
		r.Members = append(r.Members, fabric.Member{Bound: m.Bound, Node: m.Node, Shape: m.Shape})
	}
	if !g.AnyModel {
		g.fixModels(r)
	}
	g.Wishes.Apply(r)
	return r
}

// remaining returns the free capacity of a node next to members of several shapes. Members of which no
// node takes two may be of several shapes of one class.
func (g *Gang) remaining(r *fabric.Request, supply SupplyOf) func(shape, node int, used nvtopo.Mask, counts []int) fabric.Supply {
	class := make([]string, len(g.Shapes)) // of those that no node takes two of
	for i, s := range g.Shapes {
		if s.Alone {
			class[i] = s.Class
		}
	}
	return func(shape, node int, used nvtopo.Mask, counts []int) fabric.Supply {
		if r.Shapes[shape].Nodes[node].Slots == nil {
			return fabric.Supply{}
		}
		beside := make([]Placed, 0, len(counts))
		for i, count := range counts {
			switch {
			case count == 0:
			case class[shape] != "" && class[shape] == class[i]:
				return fabric.Supply{}
			default:
				beside = append(beside, Placed{Demand: g.Shapes[i].Demand, Count: count})
			}
		}
		return supply(shape, node, used, beside)
	}
}

// fixModels restricts members without a node to the GPU models of running members that request the same
// GPUs: of several models, each may get any. If none runs, or its model is not known, they are restricted
// to the model that was promised to all of them. Promises that differ are ignored: the jobs of one gang
// were checked one by one.
func (g *Gang) fixModels(r *fabric.Request) {
	running, promised := map[string][]string{}, map[string][]string{} // by GPUKey
	for i := range g.Members {
		m := &g.Members[i]
		if m.Demand == nil || !m.Demand.HasGPUs() {
			continue
		}
		of, models := promised, []string{m.Demand.PromisedModel}
		if m.Bound {
			of, models = running, m.models()
		}
		key := m.Demand.GPUKey()
		for _, model := range models {
			if !slices.Contains(of[key], model) {
				of[key] = append(of[key], model)
			}
		}
	}
	for i, s := range g.Shapes {
		key := s.Demand.GPUKey()
		if r.Shapes[i].Models = running[key]; len(running[key]) == 0 && len(promised[key]) == 1 && promised[key][0] != "" {
			r.Shapes[i].Models = promised[key]
		}
	}
}

// models returns the models of a bound member's GPUs: those of its allocation, or that of the node if all
// its GPUs are of one model; nil if not known.
func (m *Member) models() (models []string) {
	if m.Graph == nil {
		return nil
	}
	resource := m.Demand.Resources[0].Name
	accel := m.Graph.Accel(resource)
	if accel == nil || accel.Graph == nil {
		return nil
	}
	set := nvtopo.Mask(0)
	if a, err := allocation.Of(m.Pod, m.Pod.Spec.NodeName); err == nil {
		set = a.Mask(resource, accel.Graph)
	}
	all := set == 0
	if all {
		set = nvtopo.FullMask(accel.Graph.Len())
	}
	for i := range accel.Graph.GPUs {
		if m := accel.Graph.GPUs[i].Model; set.Has(i) && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	if all && len(models) > 1 || slices.Contains(models, "") {
		return nil
	}
	return models
}
