// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// Promise is an assumed allocation that its pod does not show yet: the pod's node, and the annotations
// that will be written on it.
type Promise struct {
	UID         types.UID
	Node        string
	Annotations map[string]string
}

// Promises returns all assumed allocations that are present or have an unknown outcome; of a pod with
// several, the latest. Read pods after it, as for a scheduling cycle. An allocation that waits for other
// pods to end is left out.
func (dg *Diagnoser) Promises() map[types.UID]Promise {
	out := map[types.UID]Promise{}
	latest := map[types.UID]reservations.Listed{}
	for _, r := range dg.allocations.reservations.List() {
		if r.Awaits || r.Phase == reservations.Confirmed || r.Phase == reservations.Void {
			continue
		}
		if before, ok := latest[r.UID]; ok && before.Since.After(r.Since) {
			continue
		}
		p := Promise{UID: r.UID, Node: r.Node.Name()}
		if r.Allocation != nil {
			annotations, err := dg.cache.Annotations(r.Allocation, false)
			if err != nil {
				continue // the node's topology was removed after the choice, so the attempt will fail
			}
			p.Annotations = annotations
		}
		latest[r.UID], out[r.UID] = r, p
	}
	return out
}

// LiveLease is a valid Lease of a node's program, for the Node of this UID.
type LiveLease struct {
	Name    string
	Node    string
	NodeUID types.UID
}

// LiveLeases returns the valid Leases of nodes that have published a graph.
func (dg *Diagnoser) LiveLeases() []LiveLease {
	now := dg.clock.Now()
	var out []LiveLease
	for name, x := range dg.cache.cells.all() {
		n := x.entry.Node()
		if n == nil {
			continue
		}
		for prefix, lease := range map[string]*nodelease.Expiry{nodelease.ExporterPrefix: n.Exporter, nodelease.AgentPrefix: n.Agent} {
			if lease.Fresh(now) && lease.Of(n.NodeUID) {
				out = append(out, LiveLease{prefix + name, name, n.NodeUID})
			}
		}
	}
	return out
}

// LeaderLease returns the Lease under which this process leads, according to the arguments.
func (dg *Diagnoser) LeaderLease() diagnosis.LeaderLease {
	return diagnosis.LeaderLease{Namespace: dg.config.Namespace, Name: dg.config.LeaderLease}
}
