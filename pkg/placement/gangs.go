// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
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
	for i, d := range shapes {
		shape := fabric.Shape{Nodes: make([]fabric.Supply, nodes)}
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
