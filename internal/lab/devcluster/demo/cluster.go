// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
)

// Service accounts of the manifests: scheduler and exporters have the same rights as in a real cluster,
// except that exporters also report for the node agents.
const (
	schedulerAccount = release.Namespace + "/nvtopo-scheduler"
	exporterAccount  = release.Namespace + "/nvtopo-exporter"
)

// Options configures the demo.
type Options struct {
	Kwok      string // path of the kwok program
	Scheduler string // path of the scheduler
	// SchedulerConfig is its KubeSchedulerConfiguration; the shipped one when empty.
	SchedulerConfig []byte
	SchedulerArgs   []string                 // further flags
	Nodes           []devcluster.NodeSpec    // Nodes() when nil
	Kueue           *devcluster.KueueOptions // see devcluster.Config
	Chart           *devcluster.ChartOptions // installs by Helm; nil installs the manifests
	Dir             string                   // see devcluster.Config
	Progress        io.Writer                // receives progress, in lines for people
	Log             io.Writer                // receives the programs' logs
}

// Nodes returns the demo's nodes: two of each machine.
func Nodes() []devcluster.NodeSpec {
	var out []devcluster.NodeSpec
	for _, m := range machines {
		for i := range nodesPerMachine {
			out = append(out, devcluster.NodeSpec{Name: fmt.Sprintf("%s-%c", m, 'a'+i), Machine: m})
		}
	}
	return out
}

// kinds returns the number of different machines.
func kinds(nodes []devcluster.NodeSpec) int {
	seen := map[string]bool{}
	for i := range nodes {
		seen[nodes[i].Machine] = true
	}
	return len(seen)
}

// Boot starts a cluster with the nodes, their published topology and a
// scheduler. The caller stops it.
func Boot(ctx context.Context, opts *Options) (_ *devcluster.Cluster, err error) {
	say := func(format string, args ...any) { fmt.Fprintf(opts.Progress, format+"\n", args...) }
	if opts.Kueue == nil {
		say("starting etcd, kube-apiserver, controllers and kwok")
	} else {
		say("starting etcd, kube-apiserver, controllers, kwok and Kueue")
	}
	c, err := devcluster.Start(ctx, devcluster.Config{Dir: opts.Dir, Controllers: true, KwokBinary: opts.Kwok, Kueue: opts.Kueue, Log: opts.Log})
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	nodes := opts.Nodes
	if nodes == nil {
		nodes = Nodes()
	}
	if opts.Chart != nil {
		return c, bootChart(ctx, c, opts, nodes, say)
	}
	say("installing the custom resource, roles and admission policies")
	if err := c.InstallManifests(ctx); err != nil {
		return nil, fmt.Errorf("install the manifests: %w", err)
	}
	say("adding %d nodes of %d kinds of machine and publishing their GPU topology", len(nodes), kinds(nodes))
	if err := c.AddNodes(ctx, nodes); err != nil {
		return nil, fmt.Errorf("add nodes: %w", err)
	}
	if err := c.RunExporters(ctx, nodes, devcluster.ExporterOptions{ServiceAccount: exporterAccount}); err != nil {
		return nil, fmt.Errorf("publish the nodes' topology: %w", err)
	}
	say("starting the scheduler")
	config := opts.SchedulerConfig
	if len(config) == 0 {
		if config, err = manifests.FS.ReadFile(manifests.SchedulerConfigPath); err != nil {
			return nil, fmt.Errorf("read the shipped configuration: %w", err)
		}
	}
	_, err = c.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: opts.Scheduler, Config: config, Args: opts.SchedulerArgs, ServiceAccount: schedulerAccount,
	})
	if err != nil {
		return nil, fmt.Errorf("start the scheduler: %w", err)
	}
	return c, nil
}

// bootChart has Helm install nvtopo. The scheduler runs once the caller follows the cluster.
func bootChart(ctx context.Context, c *devcluster.Cluster, opts *Options, nodes []devcluster.NodeSpec, say func(string, ...any)) error {
	say("adding %d nodes of %d kinds of machine", len(nodes), kinds(nodes))
	if err := c.AddNodes(ctx, nodes); err != nil {
		return fmt.Errorf("add nodes: %w", err)
	}
	say("installing the chart, and waiting for its simulated pods")
	chart := opts.Chart
	chart.Scheduler, chart.SchedulerArgs, chart.SchedulerAccount = opts.Scheduler, opts.SchedulerArgs, schedulerAccount
	if err := c.InstallChart(ctx, chart); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	say("publishing the nodes' GPU topology")
	if err := c.RunExporters(ctx, nodes, devcluster.ExporterOptions{ServiceAccount: exporterAccount}); err != nil {
		return fmt.Errorf("publish the nodes' topology: %w", err)
	}
	return nil
}
