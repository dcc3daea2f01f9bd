// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Placed is a number of pods with equal requests.
type Placed struct {
	Demand *Demand
	Count  int
}

// AsGiven returns the GPUs and the requests of placed pods as allocations on a node, as if one of the pods
// had all the GPUs: used, by position in the graph of the first resource of d. On which NUMA nodes their
// CPU and memory lie is not known.
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
