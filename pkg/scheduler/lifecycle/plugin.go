// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// Plugin is the common part of both plugins; embed it.
type Plugin struct {
	name   string
	cares  func(*podrequest.Request) bool
	handle fwk.Handle
	shared *Shared
	parts
	// namespaces has the tenants' namespaces, whose pods are billed.
	namespaces corelisters.NamespaceLister
	// Profile is this profile's, shared with the other plugin. New fills in its own part; later it is read
	// only.
	Profile *Profile
}

// parts are the parts of the State that the plugin uses.
type parts struct {
	nodes        *nodestate.NodeCache
	allocations  *nodestate.AllocationTable
	gangReserver *nodestate.GangReserver
	preSelector  *nodestate.PreSelector
	binder       *nodestate.Binder
	leader       *leader.Leader
	cordons      *cordons.Table
	lists        *nodestate.FirstLists
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New returns the common part of the named plugin, and the State, from which the plugin takes the parts
// that it uses. cares reports whether the plugin is for a pod; it ignores all others.
func New(ctx context.Context, h fwk.Handle, shared *Shared, name string, set Settings, cares func(*podrequest.Request) bool) (*Plugin, *nodestate.State, error) {
	if shared == nil {
		return nil, nil, errors.New("the plugin was registered without the process-wide state")
	}
	state, profile, err := shared.join(ctx, h, name, set)
	if err != nil {
		return nil, nil, err
	}
	return &Plugin{
		name: name, cares: cares, handle: h, shared: shared, Profile: profile,
		parts: parts{
			nodes: state.Nodes, allocations: state.Allocations, gangReserver: state.GangReserver, preSelector: state.PreSelector,
			binder: state.Binder, leader: state.Leader, cordons: state.Cordons, lists: state.Lists,
		},
		namespaces: h.SharedInformerFactory().Core().V1().Namespaces().Lister(),
	}, state, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.name }

// Handle returns the framework's handle.
func (p *Plugin) Handle() fwk.Handle { return p.handle }

// Cycle returns this cycle's view, or nil if the pod is not for this plugin.
func (p *Plugin) Cycle(state fwk.CycleState) *Cycle {
	c := ReadCycle(state)
	if c == nil || !p.cares(c.Demand.Request) {
		return nil
	}
	return c
}

// View returns this cycle's view and the usage of a node, for scoring. The usage is nil if there is
// nothing to score.
func (p *Plugin) View(state fwk.CycleState, info fwk.NodeInfo) (*Cycle, *usage.Usage) {
	c := p.Cycle(state)
	if c == nil {
		return nil, nil
	}
	return c, p.nodes.View(&c.Demand, info, p.Snapshot())
}

// Snapshot returns the cycle's snapshot of the nodes.
func (p *Plugin) Snapshot() fwk.NodeInfoLister { return p.handle.SnapshotSharedLister().NodeInfos() }

// parsed is a pod and its parsed demand.
type parsed struct {
	pod    *v1.Pod
	demand *placement.Demand
}

// Demand parses the pod with the profile's arguments. It remembers the profile's last result, because
// both plugins and SignPod call it in every cycle. The scheduler never changes a pod object.
func (p *Profile) Demand(pod *v1.Pod) (*placement.Demand, error) {
	if last := p.last.Load(); last != nil && last.pod == pod {
		return last.demand, nil
	}
	r, err := podrequest.Parse(pod, &p.Options)
	if err != nil {
		return nil, err
	}
	d := &placement.Demand{Request: r, Unenforced: p.Unenforced, AllowNoGraph: p.AllowNoGraph, CountStale: p.CountStale, WantCPUs: p.WantCPUs}
	p.last.Store(&parsed{pod, d})
	return d, nil
}

// IsMember reports whether a pod is one of a gang that is placed as a whole.
func (p *Profile) IsMember(pod *v1.Pod) bool {
	if !p.Gangs {
		return false
	}
	_, ok := gangrequest.KeyOf(pod)
	return ok
}

// IsNear reports whether a pod requests to be near to a gang, for which another plugin lists nodes.
func (p *Profile) IsNear(pod *v1.Pod) bool {
	if !p.Gangs {
		return false
	}
	_, ok := gangrequest.NearOf(pod)
	return ok
}
