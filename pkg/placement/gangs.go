// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// SupplyOf is what a node of the fabric's tree has for members of a shape, beside others there that
// have the GPUs used among them.
type SupplyOf func(shape, node int, used nvtopo.Mask, beside []Placed) fabric.Supply

// GangRequest is how the planner is asked for members of some shapes, each given by what it asks, on
// so many nodes. Members, ranks and wishes are the caller's to add. The scheduler, which plans again
// and again on nodes of which few have changed, makes its own from what it keeps of them
// (pkg/gangstate).
func GangRequest(shapes []*Demand, nodes int, supply SupplyOf) *fabric.Request {
	r := &fabric.Request{}
	kinds := KindsOf(shapes)
	for i, d := range shapes {
		shape := fabric.Shape{Kind: kinds[i], Nodes: make([]fabric.Supply, nodes)}
		if d.HasGPUs() {
			shape.GPUs = d.Resources[0].Count
		}
		for node := range nodes {
			shape.Nodes[node] = supply(i, node, 0, nil)
		}
		r.Shapes = append(r.Shapes, shape)
	}
	if len(shapes) > 1 {
		r.Remaining = func(shape, node int, used nvtopo.Mask, counts []int) fabric.Supply {
			var beside []Placed
			for i, count := range counts {
				if count > 0 {
					beside = append(beside, Placed{Demand: shapes[i], Count: count})
				}
			}
			return supply(shape, node, used, beside)
		}
	}
	return r
}

// KindsOf numbers what some shapes ask for, from 1 on: equal numbers for those that ask for the same
// GPUs, 0 for those without. See fabric.Shape.
func KindsOf(shapes []*Demand) []int {
	out := make([]int, len(shapes))
	known := map[string]int{}
	for i, d := range shapes {
		if key := d.GPUKey(); key != "" {
			if known[key] == 0 {
				known[key] = len(known) + 1
			}
			out[i] = known[key]
		}
	}
	return out
}

// Running is a member of a gang that has its node.
type Running struct {
	Pod    *v1.Pod
	Demand *Demand
	Node   *usage.Node // nil: nothing is known of its GPUs
}

// FixModels restricts members without a node to the GPU models of running members that ask for the same
// GPUs: of several models, each may get any. If none runs, or its model is not known, they are
// restricted to the promised model. shapes are the request's, and waiting what the members without a
// node ask for; nil is none.
func FixModels(r *fabric.Request, shapes, waiting []*Demand, running []Running) {
	models := map[string][]string{}
	for i := range running {
		key := running[i].Demand.GPUKey()
		for _, m := range running[i].models() {
			if key != "" && !slices.Contains(models[key], m) {
				models[key] = append(models[key], m)
			}
		}
	}
	promised := promisedModels(waiting)
	for i, d := range shapes {
		key := d.GPUKey()
		switch {
		case r.Shapes[i].Kind == 0:
		case len(models[key]) > 0:
			r.Shapes[i].Models = models[key]
		case promised[key] != "":
			r.Shapes[i].Models = []string{promised[key]}
		}
	}
}

// promisedModels returns the model that was promised to all members that ask for the same GPUs, by
// GPUKey. Promises that differ do not count: the jobs of one gang were asked about one by one.
func promisedModels(waiting []*Demand) map[string]string {
	out := map[string]string{}
	for _, d := range waiting {
		if d == nil {
			continue
		}
		key := d.GPUKey()
		if have, ok := out[key]; ok && have != d.PromisedModel {
			out[key] = ""
		} else {
			out[key] = d.PromisedModel
		}
	}
	return out
}

// models are those of the pod's GPUs: by its allocation, or of all of the node if they are of one; nil
// if that is not known.
func (x *Running) models() (models []string) {
	if x.Node == nil || !x.Demand.HasGPUs() {
		return nil
	}
	resource := x.Demand.Resources[0].Name
	accel := x.Node.Accel(resource)
	if accel == nil || accel.Graph == nil {
		return nil
	}
	set := nvtopo.Mask(0)
	if a, err := allocation.Of(x.Pod, x.Pod.Spec.NodeName); err == nil {
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
