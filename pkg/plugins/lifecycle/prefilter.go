// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// ErrReasonNotSynced is why GPU pods wait for a moment after a start.
const ErrReasonNotSynced = "the scheduler has not read all GPU topologies yet"

// PreFilter reads the pod once for both plugins. A value it cannot read makes
// the pod wait for its own correction; no node could cure it.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c := nodestate.ReadCycle(state)
	if c == nil {
		p.state.Sweep(p.Snapshot())
		p.state.Audit(p.Snapshot())
		d, err := p.demand(pod)
		if err != nil {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
		}
		c = &nodestate.Cycle{Demand: *d}
		state.Write(nodestate.CycleKey, c)
	}
	// One plugin's Filter gives the whole answer; the other need not repeat it.
	if !p.cares(c.Demand.Request) || (c.FilteredBy != "" && c.FilteredBy != p.name) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.state.Synced() {
		// The pods behind this one would be tried in vain, too, and each would be told so
		// in writing. A pod that waited is refused all the same: its cycle's snapshot is
		// as old as the wait. Not resolvable, so that nobody is evicted for it; the State
		// wakes the pod once it knows everything.
		p.state.AwaitLists(ctx)
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotSynced)
	}
	c.FilteredBy = p.name
	return nil, nil
}

// PreFilterExtensions is nil: what is used on a node is derived from the
// NodeInfo handed to Filter, which the framework itself edits in a dry run.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
