// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Placed is a number of pods that ask for the same.
type Placed struct {
	Demand *Demand
	Count  int
}

// AsGiven is what pods are placed beside on a node, as if one of them had all their GPUs: those
// used among them, by position in the graph of the first resource that d asks for. Of their
// CPU and memory nobody knows on which NUMA nodes they are.
func AsGiven(d *Demand, n *usage.Node, used nvtopo.Mask, placed []Placed) (out []usage.Reservation) {
	if used == 0 && len(placed) == 0 {
		return nil
	}
	all := &allocation.Allocation{Version: allocation.Version, Node: n.Name}
	if accel := n.Accel(d.Resources[0].Name); accel != nil {
		c := allocation.Container{Resource: accel.Resource}
		for p := range used.All() {
			c.GPUs = append(c.GPUs, accel.Graph.GPUs[p].UUID)
		}
		all.Containers = append(all.Containers, c)
	}
	out = append(out, usage.Reservation{UID: d.UID, Allocation: all, Request: &podrequest.Request{}})
	none := &allocation.Allocation{Version: allocation.Version, Node: n.Name}
	for _, p := range placed {
		for range p.Count {
			out = append(out, usage.Reservation{UID: d.UID, Allocation: none, Request: p.Demand.Request})
		}
	}
	return out
}
