// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-scheduler is kube-scheduler with the plugins TopologyAware, NUMAAffinity and
// GangPlacement. It takes the stock flags; all other settings are in its KubeSchedulerConfiguration. One
// feature gate has another default: pods get no nominated node name while their binding is in progress.
// NodeResourceTopologyMatch, Coscheduling and CapacityScheduling are compiled in, and are off unless a
// profile enables them. The process also runs the controller that corrects annotations to kubelet's
// record. Its hidden verb what-if predicts the fate of pods from a snapshot, and --check-config whether
// it would start with a configuration.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // args of the plugins below
	"sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build info metric
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/controller"
	"github.com/nvtopo/nvtopo/pkg/scheduler/debug"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/engine"
)

func main() {
	// Set before the flags exist, so that --feature-gates can turn it on again. Its cost, and the loss
	// without it: docs/decisions/0014-nominated-node-names.md.
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.NominatedNodeNameForExpectation, false); err != nil {
		fmt.Fprintln(os.Stderr, "nvtopo-scheduler:", err)
		os.Exit(1)
	}
	source := debug.NewSource()
	shared := lifecycle.NewShared(clock.RealClock{}, controller.Attach(source.Endpoint), source.Attach, lifecycle.TellIgnoredKeys(clock.RealClock{}))
	shared.ServeDebug(source.Serve)
	gangs := gang.NewProcess(shared)
	source.ReadGroups(gangs.Groups)
	own := plugins(shared, gangs)
	var cmd *cobra.Command
	cmd = app.NewSchedulerCommand(
		func(r runtime.Registry) error { return r.Merge(own) },
		// Not a plugin: this runs after the logger is set and before the first request.
		func(runtime.Registry) error {
			daemon.HideTokens()
			return configure(source, cmd)
		},
	)
	cmd.Use = "nvtopo-scheduler"
	cmd.Long = "kube-scheduler with plugins that choose GPUs by their links. It takes the stock flags; everything else is set in its KubeSchedulerConfiguration.\n\n" +
		"With --check-config it checks that configuration without a cluster, says what it configures, and exits."
	again := func(shared *lifecycle.Shared) runtime.Registry { return plugins(shared, gang.NewProcess(shared)) }
	cmd.AddCommand(engine.NewCommand(again))
	checks := &configChecks{own: own, plugins: again}
	checks.bind(cmd)
	os.Exit(run(cmd, checks))
}

// plugins returns the plugins in addition to kube-scheduler's own.
func plugins(shared *lifecycle.Shared, gangs *gang.Process) runtime.Registry {
	return runtime.Registry{
		topology.Name:             topology.New(shared),
		numa.Name:                 numa.New(shared),
		gang.Name:                 gang.New(gangs),
		fairsort.Name:             fairsort.New(fairsort.NewTurns(clock.RealClock{})),
		noderesourcetopology.Name: noderesourcetopology.New,
		coscheduling.Name:         gangs.Coscheduling(coscheduling.New),
		capacityscheduling.Name:   capacityscheduling.New,
	}
}

// configure passes the command's configuration file to the source.
func configure(source *debug.Source, cmd *cobra.Command) error {
	file := cmd.Flags().Lookup("config").Value.String()
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	source.Configure(string(text), cmd.Flags().Lookup("feature-gates").Value.String())
	return nil
}
