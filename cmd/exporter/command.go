// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/live"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
)

// options holds the command line's values.
type options struct {
	source     string
	sysfsRoot  string
	library    string
	model      string
	endpoint   daemon.Endpoint
	kubeconfig string
	cfg        exporter.Config
	ignoreXids []uint
	keepLost   time.Duration
	xidHold    time.Duration

	compatLabels bool
}

func newCommand(getenv func(string) string) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "nvtopo-exporter",
		Short: "Publish the GPU link graph of this node as a NodeGPUTopology",
		Long: `nvtopo-exporter reads how the GPUs of its node are joined, and which NUMA nodes
they sit on, and keeps the node's NodeGPUTopology, topology labels and Lease true.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.source, "source", "nvml", "where the graph comes from: nvml, machine:NAME of the catalogue, or file:PATH of captured text (nvidia-smi topo -m, npu-smi info -t topo, rocm-smi --showtopo) or a NodeGPUTopology")
	f.StringVar(&o.cfg.NodeName, "node-name", getenv("NODE_NAME"), "name of the node; by default the environment variable NODE_NAME")
	f.DurationVar(&o.cfg.Interval, "interval", 30*time.Second, "time between two readings without an event")
	f.StringVar(&o.sysfsRoot, "sysfs-root", "/sys", "where the host's sysfs is mounted")
	f.StringVar(&o.library, "nvml-library", "", "path of libnvidia-ml.so.1; empty searches for it")
	f.UintSliceVar(&o.ignoreXids, "ignore-xids", nil, "Xids that count as faults of the application, besides 13, 31, 43, 45, 68 and 109")
	f.DurationVar(&o.keepLost, "keep-lost", 24*time.Hour, "how long a GPU that the driver no longer lists stays published, as lost")
	f.DurationVar(&o.xidHold, "xid-hold", 5*time.Minute, "how long an Xid keeps a GPU out of service at least")
	o.endpoint.AddFlags(f, ":9101")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means in the cluster, or the default kubeconfig outside of one")
	f.BoolVar(&o.compatLabels, "compat-labels", true, "also write the labels and the annotation outside nvtopo.dev, unless somebody else has set them")
	f.StringVar(&o.cfg.Resource, "resource", "nvidia.com/gpu", "extended resource the GPUs are counted under")
	f.StringVar(&o.cfg.Namespace, "namespace", release.Namespace, "namespace of the Lease")
	f.StringVar(&o.model, "gpu-model", "", "product name of the GPUs if a captured text does not say it")
	f.BoolVar(&o.cfg.AssumeEnforced, "assume-enforced", false, "act as the node agent of a simulated node; not with --source=nvml")
	daemon.AddLogFlags(cmd)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	src, err := o.open()
	if err != nil {
		return err
	}
	restConfig, err := daemon.RESTConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	o.cfg.NoCompatLabels = !o.compatLabels
	e, err := exporter.New(o.cfg, src, kube, dyn)
	if err != nil {
		return err
	}
	return daemon.ServeWhile(ctx, &o.endpoint, restConfig, e, e.Run)
}

// open returns the source. It rejects flags of another source, because they would have no effect.
func (o *options) open() (exporter.Source, error) {
	if o.cfg.NodeName == "" {
		return nil, errors.New("--node-name is empty and NODE_NAME is not set")
	}
	if o.cfg.Interval <= 0 {
		return nil, errors.New("--interval must be positive, not " + o.cfg.Interval.String())
	}
	if o.source != "nvml" {
		return exporter.Open(o.source, o.cfg.NodeName, o.cfg.Resource, smi.Options{Model: o.model})
	}
	if o.cfg.AssumeEnforced {
		return nil, errors.New("--assume-enforced is for simulated nodes and cannot be used with --source=nvml")
	}
	if o.model != "" {
		return nil, errors.New("--gpu-model " + strconv.Quote(o.model) + " cannot be used with --source=nvml, which asks the driver")
	}
	if o.keepLost <= 0 {
		return nil, errors.New("--keep-lost must be positive, not " + o.keepLost.String())
	}
	if o.xidHold <= 0 {
		return nil, errors.New("--xid-hold must be positive, not " + o.xidHold.String())
	}
	opts := nvml.Options{KeepLost: o.keepLost, XidHold: o.xidHold}
	for _, xid := range o.ignoreXids {
		opts.IgnoreXids = append(opts.IgnoreXids, uint64(xid))
	}
	return exporter.NVML(live.New(o.library), o.sysfsRoot, opts), nil
}
