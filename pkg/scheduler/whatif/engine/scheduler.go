// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Plugins makes the plugins that are not kube-scheduler's own.
type Plugins func(shared *lifecycle.Shared) frameworkruntime.Registry

// running is a scheduler over objects in memory.
type running struct {
	scheduler *scheduler.Scheduler
	factory   informers.SharedInformerFactory
	state     *nodestate.State // nil if no profile has one of these plugins
	scores    *scores
}

// start makes the scheduler of a snapshot's configuration and feature gates.
func start(ctx context.Context, h *whatif.Header, api *rest.Config, plugins Plugins) (*running, error) {
	if h.FeatureGates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(h.FeatureGates); err != nil {
			return nil, fmt.Errorf("the snapshot's featureGates %q: %w", h.FeatureGates, err)
		}
	}
	cfg, err := readConfig(h.Config)
	if err != nil {
		return nil, fmt.Errorf("the snapshot's config: %w", err)
	}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("client for the objects in memory: %w", err)
	}
	out := &running{scores: newScores()}
	shared := lifecycle.NewShared(clock.RealClock{})
	// Nothing is served: this is the way to get the State.
	shared.ServeDebug(func(_ context.Context, _ fwk.Handle, _ lifecycle.Debug, state *nodestate.State) error {
		out.state = state
		return nil
	})
	out.factory = scheduler.NewInformerFactory(client, 0)
	out.scheduler, err = scheduler.New(ctx, client, out.factory, nil,
		func(string) events.EventRecorder { return &events.FakeRecorder{} },
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithKubeConfig(api),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins(shared)),
		scheduler.WithPodMaxBackoffSeconds(1), scheduler.WithPodInitialBackoffSeconds(1),
		scheduler.WithParallelism(cfg.Parallelism),
	)
	if err != nil {
		return nil, fmt.Errorf("the scheduler of the snapshot's config: %w", err)
	}
	for name, fw := range out.scheduler.Profiles {
		out.scheduler.Profiles[name] = listening{fw, out.scores}
	}
	return out, nil
}

// readConfig reads a KubeSchedulerConfiguration for the only scheduler, whose Leases do not run out and
// whose state is not served.
func readConfig(text string) (*schedconfig.KubeSchedulerConfiguration, error) {
	obj, gvk, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, ok := obj.(*schedconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("kind %s: want a KubeSchedulerConfiguration", gvk.Kind)
	}
	cfg.APIVersion = gvk.GroupVersion().String()
	if len(cfg.Extenders) > 0 {
		return nil, fmt.Errorf("extenders: what-if does not ask programs outside the scheduler, and there are %d", len(cfg.Extenders))
	}
	for i := range cfg.Profiles {
		for j := range cfg.Profiles[i].PluginConfig {
			alone(cfg.Profiles[i].PluginConfig[j].Args)
		}
	}
	return cfg, nil
}

func alone(args runtime.Object) {
	var common *config.CommonArgs
	switch a := args.(type) {
	case *config.TopologyAwareArgs:
		common = &a.CommonArgs
	case *config.NUMAAffinityArgs:
		common = &a.CommonArgs
	default:
		return
	}
	common.LeaderLease = config.LeaderLease{DurationSeconds: common.LeaderLease.DurationSeconds}
	common.GraphFreshness = metav1.Duration{}
	common.DebugAddress, common.DebugCertFile, common.DebugKeyFile = "127.0.0.1:1", "", "" // no listener; see start
}

// ready waits until the scheduler has all objects, and then starts it until ctx ends.
func (r *running) ready(ctx context.Context, known func(resources ...string) bool) error {
	r.factory.Start(ctx.Done())
	for kind, synced := range r.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("the scheduler reads %s, of which a snapshot has none", kind)
		}
	}
	if err := r.scheduler.WaitForHandlersSync(ctx); err != nil {
		return fmt.Errorf("reading the snapshot's objects: %w", err)
	}
	err := poll(ctx, func() bool {
		if r.state == nil {
			return true
		}
		return r.state.Lists.Synced() && r.state.Fabric.Current().Revision > 0 && known("nodegputopologies", "leases", "podgroups")
	})
	if err != nil {
		return fmt.Errorf("reading graphs, Leases, fabric and PodGroups: %w", err)
	}
	go r.scheduler.Run(ctx)
	return nil
}

// pollEvery is the time between two checks of a condition.
const pollEvery = 5 * time.Millisecond

// poll waits until is returns true, or ctx ends.
func poll(ctx context.Context, is func() bool) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
