// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// ErrReasonNotSynced is why GPU pods wait for a moment after a start.
const ErrReasonNotSynced = "the scheduler has not read all GPU topologies yet"

// PreFilter reads the pod once for both plugins. If it cannot read a value, the pod
// waits until it is corrected itself; no node could help.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c := ReadCycle(state)
	if c == nil {
		p.allocations.Sweep(p.Snapshot())
		d, err := p.Profile.Demand(pod)
		if err != nil {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
		}
		c = &Cycle{Demand: *d, Owner: p.Profile.owner(d.Request), Member: p.Profile.IsMember(pod)}
		if c.Member {
			c.Planned, _ = p.gangReserver.Planned(pod.UID)
		}
		state.Write(CycleKey, c)
	}
	if c.Owner != p.name || !p.cares(c.Demand.Request) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.lists.Synced() {
		// The pods behind this one would also be tried in vain, and each would get an event. A pod that waited
		// is refused anyway, because its cycle's snapshot is as old as the wait. The status is not resolvable,
		// so no pod is evicted for it. The State wakes the pod when it has read everything.
		p.lists.Await(ctx)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotSynced)
	}
	return nil, nil
}

// PreFilterExtensions is nil: the usage of a node is computed from the NodeInfo that
// Filter gets, and the framework edits that itself in a dry run.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
