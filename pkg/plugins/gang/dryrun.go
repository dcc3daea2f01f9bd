// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// dryRunKey marks a cycle that only runs other plugins' filters.
const dryRunKey fwk.StateKey = "nvtopo.dev/gang-dry-run"

type dryRun struct{}

// Clone returns the same.
func (d dryRun) Clone() fwk.StateData { return d }

// inDryRun reports whether PreFilter is called by this plugin's own dry run.
func inDryRun(state fwk.CycleState) bool {
	_, err := state.Read(dryRunKey)
	return err == nil
}

// preFilters is a method of the framework that its Handle lacks.
type preFilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// rehearsal runs the other plugins' filters for the members of a gang on their nodes, without the victims.
type rehearsal struct {
	p      *Plugin
	ctx    context.Context //nolint:containedctx // a rehearsal lives for one call
	e      *gangstate.Eviction
	infos  map[string]fwk.NodeInfo   // copies, to which members are added
	states map[string]fwk.CycleState // by shape
	first  map[string]*v1.Pod        // the pod of each state
}

// objection returns the first refusal by another plugin. Our own plugins are not called: the plan includes
// their checks. why is empty if all members fit.
func (p *Plugin) objection(ctx context.Context, e *gangstate.Eviction) (refusal gangstate.Refusal, why string) {
	r := &rehearsal{p: p, ctx: ctx, e: e, infos: map[string]fwk.NodeInfo{}, states: map[string]fwk.CycleState{}, first: map[string]*v1.Pod{}}
	for i := range e.Answer.Members {
		m := &e.Answer.Members[i]
		if refusal, status := r.try(m); !status.IsSuccess() {
			return refusal, fmt.Sprintf("%s on node %s: %s", m.Pod.Name, m.Node, status.Message())
		}
	}
	return gangstate.Refusal{}, ""
}

// try runs the filters for one member, and leaves it on its node.
func (r *rehearsal) try(m *nodestate.GangMember) (gangstate.Refusal, *fwk.Status) {
	refusal := gangstate.Refusal{Shape: gangstate.KeyOf(m.Pod, m.Demand), Node: m.Node}
	info, err := r.info(m.Node)
	if err != nil {
		return refusal, fwk.AsStatus(err)
	}
	state, status := r.state(refusal.Shape, m)
	if !status.IsSuccess() {
		return refusal, status
	}
	if status := r.p.handle.RunFilterPluginsWithNominatedPods(r.ctx, state, m.Pod, info); !status.IsSuccess() {
		return refusal, status
	}
	placed := m.Pod.DeepCopy()
	placed.Spec.NodeName = m.Node
	pi, err := framework.NewPodInfo(placed)
	if err != nil {
		return refusal, fwk.AsStatus(err)
	}
	info.AddPodInfo(pi)
	for shape, state := range r.states {
		if status := r.p.handle.RunPreFilterExtensionAddPod(r.ctx, state, r.first[shape], pi, info); !status.IsSuccess() {
			return refusal, status
		}
	}
	return refusal, nil
}

// info returns a node without the victims.
func (r *rehearsal) info(node string) (fwk.NodeInfo, error) {
	if known := r.infos[node]; known != nil {
		return known, nil
	}
	info := r.e.Infos[node]
	if info == nil {
		var err error
		if info, err = r.p.handle.SnapshotSharedLister().NodeInfos().Get(node); err != nil {
			return nil, fmt.Errorf("node %s: %w", node, err)
		}
	}
	r.infos[node] = info.Snapshot()
	return r.infos[node], nil
}

// state returns the other plugins' cycle state for members of a shape, without the victims.
func (r *rehearsal) state(shape string, m *nodestate.GangMember) (fwk.CycleState, *fwk.Status) {
	if known := r.states[shape]; known != nil {
		return known, nil
	}
	run, ok := r.p.handle.(preFilters)
	if !ok {
		return nil, fwk.NewStatus(fwk.Error, "the framework runs no PreFilter for plugins")
	}
	state := framework.NewCycleState()
	state.Write(dryRunKey, dryRun{})
	state.Write(lifecycle.CycleKey, &lifecycle.Cycle{Demand: *m.Demand, Member: true, Owner: Name})
	result, status, _ := run.RunPreFilterPlugins(r.ctx, state, m.Pod)
	if !status.IsSuccess() {
		return nil, status
	}
	if !result.AllNodes() && !result.NodeNames.Has(m.Node) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "another plugin wants the pod on other nodes")
	}
	for _, l := range r.e.Leaves {
		info, err := r.p.handle.SnapshotSharedLister().NodeInfos().Get(l.Node)
		if err != nil {
			continue
		}
		for _, pi := range info.GetPods() {
			if pi.GetPod().UID != l.Pod.UID {
				continue
			}
			if status := r.p.handle.RunPreFilterExtensionRemovePod(r.ctx, state, m.Pod, pi, info); !status.IsSuccess() {
				return nil, status
			}
		}
	}
	r.states[shape], r.first[shape] = state, m.Pod
	return state, nil
}
