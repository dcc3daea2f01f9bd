// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = config.GangPlacementName

// Plugin is GangPlacement in one profile.
type Plugin struct {
	*Process
	handle fwk.Handle
}

var (
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PermitPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New returns the plugin's factory.
func New(process *Process) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if process == nil {
			return nil, errors.New("the plugin was registered without the process-wide state")
		}
		args, ok := obj.(*config.GangPlacementArgs)
		if !ok {
			return nil, fmt.Errorf("args of %s are %T, want %T", Name, obj, args)
		}
		if err := config.ValidateGangPlacementArgs(args); err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		if err := process.configure(&gangstate.Config{
			ScheduleTimeout: args.ScheduleTimeout.Duration, AnyModelAfter: args.AnyModelAfter.Duration,
			DrainAfter: args.DrainAfter.Duration, DrainFor: args.DrainFor.Duration, DrainShare: *args.DrainShare, DrainTotalShare: *args.DrainTotalShare,
			DrainNamespaces: args.DrainNamespaces, DrainExcludedNamespaces: args.DrainExcludedNamespaces,
		}); err != nil {
			return nil, fmt.Errorf("profile %s: args of %s: %w", h.ProfileName(), Name, err)
		}
		if err := process.join(ctx, h); err != nil {
			return nil, err
		}
		return &Plugin{Process: process, handle: h}, nil
	}
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// SignPod keeps members from being batched: each has a node of its own in the plan. So it does with pods
// that want to be near a gang, since their lists depend on the gang's place.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, member := gangrequest.KeyOf(pod); member {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is a member of a gang")
	}
	if _, near := gangrequest.NearOf(pod); near {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is to be near to a gang")
	}
	return nil, nil
}

// EventsToRegister names no event: gangstate decides when a gang is tried again. The framework calls it
// when the profile is complete, so the start fails here if the plugins are in a wrong order.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	p.mu.Lock()
	started := p.gangs != nil
	p.mu.Unlock()
	if !started {
		return nil, fmt.Errorf("profile %s: %s places pods by what TopologyAware or NUMAAffinity knows of nodes, and no profile has one of them beside it: enable TopologyAware in this profile", p.handle.ProfileName(), Name)
	}
	f, ok := p.handle.(interface{ ListPlugins() *schedconfig.Plugins })
	if !ok {
		return nil, nil
	}
	enabled := f.ListPlugins()
	points := []struct {
		name string
		set  *schedconfig.PluginSet
	}{
		{"preEnqueue", &enabled.PreEnqueue},
		{"preFilter", &enabled.PreFilter},
		{"filter", &enabled.Filter},
		{"postFilter", &enabled.PostFilter},
		{"reserve", &enabled.Reserve},
		{"permit", &enabled.Permit},
	}
	for _, at := range points {
		if err := p.first(at.name, at.set, &enabled.PostFilter); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// first refuses a profile in which another plugin that chooses devices or victims comes before this one.
func (p *Plugin) first(point string, set, postFilter *schedconfig.PluginSet) error {
	own := slices.IndexFunc(set.Enabled, func(e schedconfig.Plugin) bool { return e.Name == Name })
	if own < 0 {
		return fmt.Errorf("profile %s: plugins.%s must not leave out %s", p.handle.ProfileName(), point, Name)
	}
	others := []string{config.TopologyAwareName, config.NUMAAffinityName}
	if set == postFilter {
		others = append(others, names.DefaultPreemption)
	}
	for _, other := range others {
		if i := slices.IndexFunc(set.Enabled, func(e schedconfig.Plugin) bool { return e.Name == other }); i >= 0 && i < own {
			return fmt.Errorf("profile %s: plugins.%s.enabled must list %s before %s", p.handle.ProfileName(), point, Name, other)
		}
	}
	return nil
}
