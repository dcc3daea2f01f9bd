// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = config.TopologyAwareName

// Plugin is TopologyAware.
type Plugin struct {
	*lifecycle.Plugin
	logger      klog.Logger
	nodes       *nodestate.NodeCache
	preSelector *nodestate.PreSelector
	waiting     *nodestate.WaitingPods
	refusals    *refusals.Table
	narrowing   candidates.Narrowing
	preemptor   *preemptor
}

var (
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ScoreExtensions   = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New returns the plugin's factory over the process-wide state.
func New(shared *lifecycle.Shared) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, ok := obj.(*config.TopologyAwareArgs)
		if !ok {
			return nil, fmt.Errorf("args of %s are %T, want %T", Name, obj, args)
		}
		if err := config.ValidateTopologyAwareArgs(args); err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		base, state, err := lifecycle.New(ctx, h, shared, Name, lifecycle.SettingsOf(&args.CommonArgs), (*podrequest.Request).HasGPUs)
		if err != nil {
			return nil, err
		}
		if err := fill(base.Profile, args); err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		order, err := orderOf(args)
		if err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		preemptor, err := newPreemptor(ctx, h, state, shared.Clock(), base.Profile)
		if err != nil {
			return nil, err
		}
		preemptor.tolerance = *args.TimeTolerance
		state.Profiles.Describe(h.ProfileName(), func(p *diagnosis.Profile) { describe(p, args, base.Profile) })
		if base.Profile.CountStale {
			state.SetCountStale()
		}
		return &Plugin{
			Plugin: base, logger: klog.FromContext(ctx), preemptor: preemptor,
			nodes: state.Nodes, preSelector: state.PreSelector, waiting: state.Waiting, refusals: state.Refusals,
			narrowing: candidates.Narrowing{
				Limit: int(*args.NarrowTo), Tolerance: *args.NarrowTolerance, KeepOff: *args.ReserveGPUNodes,
				Order: order,
			},
		}, nil
	}
}

// orderOf returns the order in which nodes are compared according to the arguments.
func orderOf(args *config.TopologyAwareArgs) (nodeindex.Order, error) {
	singles, err := nodeindex.ParseSingles(string(args.SingleGPUs))
	return nodeindex.Order{
		Weights:   nodeindex.Weights{Bandwidth: *args.BandwidthWeight, Latency: *args.LatencyWeight, Fragmentation: *args.FragmentationWeight},
		Tolerance: *args.TimeTolerance, Headroom: *args.LargerPodsHeadroom, Singles: singles,
	}, err
}

// describe adds this plugin's arguments to the published profile.
func describe(p *diagnosis.Profile, args *config.TopologyAwareArgs, profile *lifecycle.Profile) {
	p.Resources, p.DefaultPolicy, p.SupportedPolicies = args.Resources, args.DefaultPolicy, args.SupportedPolicies
	p.AllowNoGraph, p.CountStale = profile.AllowNoGraph, profile.CountStale
	p.UnenforcedNodes, p.HardwareLabels, p.ResidualWeights = string(args.UnenforcedNodes), args.HardwareLabels, args.ResidualWeights
	p.Order = &diagnosis.Order{
		BandwidthWeight: *args.BandwidthWeight, LatencyWeight: *args.LatencyWeight, FragmentationWeight: *args.FragmentationWeight,
		TimeTolerance: *args.TimeTolerance, LargerPodsHeadroom: *args.LargerPodsHeadroom, SingleGPUs: string(args.SingleGPUs),
	}
}

// fill adds this plugin's part to the profile.
func fill(p *lifecycle.Profile, args *config.TopologyAwareArgs) error {
	p.Options.Supported = nil
	for _, s := range args.SupportedPolicies {
		policy, err := nvtopo.ParsePolicy(s)
		if err != nil {
			return err
		}
		p.Options.Supported = append(p.Options.Supported, policy)
	}
	var err error
	if p.Options.DefaultPolicy, err = nvtopo.ParsePolicy(args.DefaultPolicy); err != nil {
		return err
	}
	p.Options.HardwareLabels = args.HardwareLabels
	if p.Unenforced, err = placement.ParseUnenforced(string(args.UnenforcedNodes)); err != nil {
		return err
	}
	p.AllowNoGraph = args.NodesWithoutTopology == config.NodesWithoutTopologyAllow
	p.TerminationWait = args.TerminationWait.Duration
	p.CountStale = args.StaleTopology == config.StaleTopologyCount
	return nil
}
