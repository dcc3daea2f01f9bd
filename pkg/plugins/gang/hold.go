// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Reserve reserves the places of all members in the cycle that planned them. In the others' cycles it only
// records that theirs are used.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	c := read(state)
	switch {
	case c == nil:
		return nil
	case c.turn != nil:
		return p.hold(ctx, c, pod)
	case !p.gangs.Reserved(pod.UID):
		return fwk.NewStatus(fwk.Unschedulable, "the gang's attempt has ended")
	}
	return nil
}

func (p *Plugin) hold(ctx context.Context, c *cycle, pod *v1.Pod) *fwk.Status {
	members := c.answer.Members
	failed, reason := p.gangReserver.ReserveGang(members, p.handle.SnapshotSharedLister().NodeInfos(), nil, nil)
	if reason != placement.Fits {
		why := "gang: what was planned cannot be held"
		if failed >= 0 && failed < len(members) {
			m := &members[failed]
			why += ": " + m.Pod.Name + " on " + m.Node + ": " + reason.Text(m.Demand.Request)
		}
		p.gangs.NotHeld(c.turn.Gang.Key, why)
		return fwk.NewStatus(fwk.Unschedulable, why)
	}
	p.nominate(ctx, members, pod) // before Hold: the end of the attempt removes nominations
	if !p.gangs.Hold(c.turn, pod, c.answer) {
		p.unclaimed(members)
		return fwk.NewStatus(fwk.Unschedulable, "the gang changed while it was planned")
	}
	return nil
}

func uidsOf(members []nodestate.GangMember) []types.UID {
	uids := make([]types.UID, len(members))
	for i := range members {
		uids[i] = members[i].Pod.UID
	}
	return uids
}

// nominate keeps CPU, memory and ports for the siblings against pods of lower or equal priority. It is a
// best effort: the queue drops a nomination when the pod changes. Devices are kept by assumed allocations.
func (p *Plugin) nominate(ctx context.Context, members []nodestate.GangMember, first *v1.Pod) {
	for i := range members {
		m := &members[i]
		if m.Pod.UID == first.UID {
			continue
		}
		info, err := framework.NewPodInfo(m.Pod)
		if err != nil {
			continue // the queue has the pod as well, and reports its error
		}
		p.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: m.Node})
	}
}

// Unreserve ends the attempt for all, unless it is committed: then the member comes again alone.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if read(state) != nil {
		p.gangs.Unreserved(pod.UID)
	}
}

// Permit lets no member through before the last one has come.
func (p *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if read(state) == nil {
		return nil, 0
	}
	timeout, ok := p.gangs.Permit(pod.UID)
	switch {
	case !ok:
		return fwk.NewStatus(fwk.Unschedulable, "the gang's attempt has ended"), 0
	case timeout == 0:
		return nil, 0
	}
	return fwk.NewStatus(fwk.Wait), timeout
}
