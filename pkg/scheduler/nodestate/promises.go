// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// Promise is a choice that its pod does not show yet: the node it is to have, and what will be
// written on it.
type Promise struct {
	UID         types.UID
	Node        string
	Annotations map[string]string
}

// Promises returns all present and doubtful choices; of a pod with several, the latest. Read pods
// after it, as for a scheduling cycle. A choice that waits for others to go is none.
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
				continue // the node's topology went away after the choice, so it will fail
			}
			p.Annotations = annotations
		}
		latest[r.UID], out[r.UID] = r, p
	}
	return out
}

// LiveLease is a Lease of a node's program that counts now, for the Node of this UID.
type LiveLease struct {
	Name    string
	Node    string
	NodeUID types.UID
}

// LiveLeases returns the Leases that count, of nodes that have published a graph.
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

// LeaderLease is the Lease under which this process leads, as the arguments say.
func (dg *Diagnoser) LeaderLease() diagnosis.LeaderLease {
	return diagnosis.LeaderLease{Namespace: dg.config.Namespace, Name: dg.config.LeaderLease}
}
