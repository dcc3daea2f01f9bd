// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent"
)

// options holds the command line's values.
type options struct {
	cfg                 nodeagent.Config
	mode, topology, nri string
	endpoint            daemon.Endpoint
	kubeconfig          string
}

func newCommand(getenv func(string) string) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "nvtopo-node-agent",
		Short: "Make sure that the containers of this node get the GPUs that the scheduler chose",
		Long: `nvtopo-node-agent stands between kubelet and the device plugin of the GPUs. The
plugin registers with the agent (its KUBELET_SOCKET is kubelet.sock in the folder
nvtopo of the plugin folder), the agent registers the same resource with kubelet
and passes everything on but one question: which devices to prefer. That it answers
with what the scheduler wrote on the pod, so that kubelet records, and the container
gets, the GPUs that were chosen. What kubelet recorded is published in the status of
the node's NodeGPUTopology.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.cfg.Node, "node-name", getenv("NODE_NAME"), "name of the node; by default the environment variable NODE_NAME")
	f.StringVar(&o.mode, "mode", string(nodeagent.Repair), "what to do when a container cannot get its GPUs: repair (give it the best available, correct the annotation) or strict (refuse it)")
	f.StringVar(&o.topology, "topology", string(nodeagent.PassTopology), "whether kubelet is told the devices' NUMA nodes: pass or strip")
	f.StringVar(&o.nri, "nri", string(nodeagent.NRIOff), "what to do as an NRI plugin of the container runtime: off, report (containers that ask for GPUs they were not given) or pin (also confine GPU containers to their GPUs' NUMA nodes)")
	f.StringVar(&o.cfg.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the runtime's NRI socket")
	f.StringSliceVar(&o.cfg.NRIExempt, "nri-exempt-namespaces", []string{"kube-system", "gpu-operator", "nvidia-gpu-operator", release.Namespace}, "namespaces whose containers may ask for any GPU, as device plugins and monitoring do")
	f.StringVar(&o.cfg.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "kubelet's root folder")
	f.StringVar(&o.cfg.PluginDir, "plugin-dir", "/var/lib/kubelet/device-plugins", "folder of the device plugins' sockets")
	f.StringVar(&o.cfg.PodResourcesSocket, "pod-resources-socket", "", "kubelet's PodResources socket; by default pod-resources/kubelet.sock in --kubelet-dir")
	f.StringVar(&o.cfg.StateDir, "state-dir", "/var/lib/nvtopo", "folder that keeps over a restart which container was given what")
	f.StringVar(&o.cfg.KubeletConfig, "kubelet-config", "", "kubelet's configuration file; empty asks kubelet's /configz")
	f.StringVar(&o.cfg.SysfsRoot, "sysfs-root", "/sys", "where the host's sysfs is mounted")
	o.endpoint.AddFlags(f, ":9102")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means in the cluster, or the default kubeconfig outside of one")
	f.StringVar(&o.cfg.Namespace, "namespace", release.Namespace, "namespace of the Lease")
	daemon.AddLogFlags(cmd)
	cmd.AddCommand(newSimulateCommand(getenv))
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.cfg.Node == "" {
		return errors.New("--node-name is empty and NODE_NAME is not set")
	}
	o.cfg.Mode, o.cfg.Topology, o.cfg.NRI = nodeagent.Mode(o.mode), nodeagent.Topology(o.topology), nodeagent.NRIMode(o.nri)
	restConfig, err := daemon.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	agent, err := nodeagent.New(o.cfg, restConfig, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return daemon.ServeWhile(ctx, &o.endpoint, restConfig, agent, agent.Run)
}
