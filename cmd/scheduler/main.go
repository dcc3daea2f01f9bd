// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-scheduler is kube-scheduler with the plugins TopologyAware,
// NUMAAffinity and GangPlacement. It takes the stock flags; everything else is set in its
// KubeSchedulerConfiguration. One feature gate has another default: pods get no
// nominated node name while their binding is in progress. NodeResourceTopologyMatch,
// Coscheduling and CapacityScheduling are compiled in, and are off unless a profile
// enables them. The process also runs the controller that corrects annotations to what
// kubelet recorded.
package main

import (
	"fmt"
	"os"

	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // args of the plugins below
	"sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build info metric
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/controller"
	"github.com/nvtopo/nvtopo/pkg/daemon"
	"github.com/nvtopo/nvtopo/pkg/debug"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

func main() {
	// Set before the flags exist, so that --feature-gates can turn it on again. Its
	// cost, and what is lost without it: docs/decisions/0014-nominated-node-names.md.
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.NominatedNodeNameForExpectation, false); err != nil {
		fmt.Fprintln(os.Stderr, "nvtopo-scheduler:", err)
		os.Exit(1)
	}
	shared := lifecycle.NewShared(clock.RealClock{}, controller.Attach)
	shared.ServeDebug(debug.Serve)
	gangs := gang.NewProcess(shared)
	cmd := app.NewSchedulerCommand(
		app.WithPlugin(topology.Name, topology.New(shared)),
		app.WithPlugin(numa.Name, numa.New(shared)),
		app.WithPlugin(gang.Name, gang.New(gangs)),
		app.WithPlugin(noderesourcetopology.Name, noderesourcetopology.New),
		app.WithPlugin(coscheduling.Name, gangs.Coscheduling(coscheduling.New)),
		app.WithPlugin(capacityscheduling.Name, capacityscheduling.New),
		// Not a plugin: this runs after the logger is set and before the first request.
		func(runtime.Registry) error {
			daemon.HideTokens()
			return nil
		},
	)
	cmd.Use = "nvtopo-scheduler"
	cmd.Long = "kube-scheduler with plugins that choose GPUs by their links. It takes the stock flags; everything else is set in its KubeSchedulerConfiguration."
	os.Exit(cli.Run(cmd))
}
