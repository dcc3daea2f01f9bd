// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/pooldemo"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// upFlags holds the flags of up besides the programs'.
type upFlags struct {
	nodes           nodeFlags
	pools, helm     bool
	chart           devcluster.ChartOptions
	programsOfPools poolPrograms
}

func upCommand(s *settings) *cobra.Command {
	o := &upFlags{}
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and keep it running until Ctrl-C",
		Long: `Starts a control plane, simulated nodes and the scheduler, prints the line that points
kubectl at it, and ends it at Ctrl-C. Then everything is removed but the folder of --dir.
The nodes are the demo's twelve, or those of --nodes: MACHINE-1, MACHINE-2 and so on of each
MACHINE; "nvtopo machines" lists the kinds. --racks and --switches label them as parts of a
network, in order and evenly. --pools and --helm exclude each other.

With --pools Kueue and the pool controller run too (make bin/kueue build): jobs in
namespaces with the label ` + poolv1alpha1.LabelTenant + ` start when their ComputePool has
quota for them, and a RemoteGPUSession becomes ready, although nothing serves at its
endpoint: no container runs.

With --helm the chart is installed as docs/install.md says (make bin/helm), and a
kube-scheduler places its pods. These count as running on the simulated nodes, and no
container of theirs runs. What they would do is done on this machine, by processes:
  scheduler   one nvtopo-scheduler while the Deployment nvtopo-scheduler has replicas,
              however many. "kubectl -n nvtopo-system scale deploy/nvtopo-scheduler
              --replicas=0" ends it, and a scale to 1 or more starts it
  exporters   in nvtopo-devcluster itself, one a node, while their DaemonSet is there
  agents      none: exporters publish in their place that nodes enforce choices
After "helm uninstall" or "nvtopo uninstall" they end; up prints the two commands, with your
values, that install nvtopo again. After "helm upgrade" the scheduler has its new
configuration. One with which it would not start is told here, with
the field at fault, and the scheduler goes on with the one before, as with the init
container check-config on a real cluster. That it ends, and starts, is told here too. The
state of its pods is not simulated: they count as running all the same.

While it runs, "nvtopo-devcluster fail" and "heal" have an exporter, an agent, a GPU or a
node fail. What needs a real kubelet or a driver cannot be tried here: which GPUs a
container has, the agent's socket and NVIDIA's device plugin, NRI, verify-node, "helm
test", and the pods of the web view; see "nvtopo-devcluster demo-node". A pod that is
deleted goes even from a node that has failed.`,
		Example: `  nvtopo-devcluster up --nodes dgx-h100=8,a100-pcie-4-bridged=4 --racks 4 --switches 2
  nvtopo-devcluster up --helm --helm-values my-values.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd, s, o) },
	}
	f := c.Flags()
	f.BoolVar(&o.pools, "pools", false, "run Kueue and the pool controller, for quotas and queues")
	o.programsOfPools.addFlags(f)
	o.nodes.addFlags(f)
	f.BoolVar(&o.helm, "helm", false, "install nvtopo by Helm and the chart")
	f.StringVar(&o.chart.Helm, "helm-program", sibling("helm"), "path of Helm's program")
	f.StringVar(&o.chart.Chart, "chart", sibling("../charts/nvtopo"), "folder of the chart")
	f.StringVar(&o.chart.Values, "helm-values", "", "file of values for the chart")
	return c
}

// apply transfers the flags to the options.
func (o *upFlags) apply(s *settings, opts *demo.Options) error {
	var err error
	if opts.Nodes, err = o.nodes.specs(); err != nil {
		return err
	}
	if !o.helm {
		if o.chart.Values != "" {
			return errors.New("--helm-values: it is for --helm")
		}
		return nil
	}
	if o.pools || s.config != "" {
		return errors.New("--helm: --pools and --scheduler-config cannot be used with it; the value scheduler.config sets a configuration")
	}
	if err := errors.Join(exists(o.chart.Helm), exists(o.chart.Chart)); err != nil {
		return fmt.Errorf("helm or the chart is missing (make bin/helm; --chart): %w", err)
	}
	for _, path := range []*string{&o.chart.Helm, &o.chart.Chart, &o.chart.Values} {
		if *path == "" {
			continue // no values file
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("--helm: %w", err)
		}
	}
	for i := range opts.Nodes {
		opts.Nodes[i].Labels[devcluster.LabelGPUPresent] = "true"
	}
	opts.Chart = &o.chart
	return nil
}

// exists returns an error unless the file or folder exists.
func exists(path string) error {
	_, err := os.Stat(path)
	return err // it names the path
}

func up(cmd *cobra.Command, s *settings, o *upFlags) (err error) {
	if o.pools {
		s.pools = &o.programsOfPools
	}
	ctx, progress := cmd.Context(), cmd.ErrOrStderr()
	log, closeLog, err := s.logs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	opts, err := s.options(ctx, progress, log)
	if err != nil {
		return err
	}
	o.chart.Progress = progress
	if err := o.apply(s, opts); err != nil {
		return err
	}
	fmt.Fprintln(progress, o.starting(len(opts.Nodes)))
	c, err := demo.Boot(ctx, opts)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // run recognizes Ctrl-C by it
		}
		_, _ = io.WriteString(progress, log.String()) // the error is reported anyway
		return err
	}
	if s.pools != nil {
		if err := pooldemo.Start(ctx, c, s.pools.controller); err != nil {
			return errors.Join(err, c.Stop())
		}
	}
	if opts.Chart != nil {
		fmt.Fprintln(progress, again(opts.Chart.Commands(c.Dir())))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Fprintln(progress, ready(s.dir))
	return errors.Join(c.Follow(ctx, opts.Chart), c.Stop())
}

// starting returns the first line of output: the parts being started, and the time that takes as measured
// on two busy cores.
func (o *upFlags) starting(nodes int) string {
	with, seconds := "the scheduler", 9
	switch {
	case o.helm:
		with, seconds = "nvtopo's chart", 19
	case o.pools:
		with, seconds = "the scheduler, Kueue and the pool controller", 19
	}
	return fmt.Sprintf("starting a cluster of %d simulated GPU nodes with %s: it usually takes %d s", nodes, with, seconds+nodes/10)
}

// again describes how to reinstall nvtopo after an uninstall.
func again(commands [2]string) string {
	return "to install nvtopo again after an uninstall, with the same values:\n  " + strings.Join(commands[:], "\n  ")
}

// ready returns the last line of output: the environment to set, how the cluster is ended, and what stays
// of it. dir is the folder of --dir, or "".
func ready(dir string) string {
	stays := "removes everything"
	if dir != "" {
		stays = "leaves the folder " + dir
	}
	return "the cluster is ready: set KUBECONFIG in another terminal by the line above. Ctrl-C here ends the cluster and " + stays
}
