// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = config.NUMAAffinityName

// Plugin is NUMAAffinity.
type Plugin struct {
	*lifecycle.Plugin
	sameNUMABonus, crossNUMAPenalty int64
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New returns the plugin's factory over the process-wide state.
func New(shared *lifecycle.Shared) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, ok := obj.(*config.NUMAAffinityArgs)
		if !ok {
			return nil, fmt.Errorf("args of %s are %T, want %T", Name, obj, args)
		}
		if err := config.ValidateNUMAAffinityArgs(args); err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		affinity, err := podrequest.ParseAffinity(string(args.DefaultAffinity))
		if err != nil {
			return nil, fmt.Errorf("args of %s: %w", Name, err)
		}
		base, state, err := lifecycle.New(ctx, h, shared, Name, lifecycle.SettingsOf(&args.CommonArgs), (*podrequest.Request).Placed)
		if err != nil {
			return nil, err
		}
		base.Profile.Options.DefaultAffinity = affinity
		base.Profile.WantCPUs = *args.CPUSet
		state.Profiles.Describe(h.ProfileName(), func(p *diagnosis.Profile) {
			p.DefaultAffinity, p.CPUSet = string(args.DefaultAffinity), *args.CPUSet
		})
		return &Plugin{Plugin: base, sameNUMABonus: *args.SameNUMABonus, crossNUMAPenalty: *args.CrossNUMAPenalty}, nil
	}
}
