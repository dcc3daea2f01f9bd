// SPDX-License-Identifier: Apache-2.0

package gpunode

import "io"

// Config configures a Lab.
type Config struct {
	// Bin is the folder of all programs, the project's and the node's.
	Bin string
	// Node is the name of the node; "gpu-node" when empty.
	Node string
	// KubeletProgram, Kubelet and NRI are those of realnode.Config.
	KubeletProgram string
	Kubelet        map[string]any
	NRI            bool
	// Agent runs the node agent between kubelet and the device plugin, with
	// AgentArgs as further flags. Without it the plugin registers with kubelet.
	Agent     bool
	AgentArgs []string
	// NVIDIA runs NVIDIA's own device plugin and the project's exporter on the fake driver that shows the
	// machine, in place of the simulated plugin and a graph that is published as it is. PluginArgs are
	// further flags of NVIDIA's plugin.
	NVIDIA     bool
	PluginArgs []string
	// Library is the path of the machine's own libnvidia-ml.so.1. With it NVIDIA is true, and plugin and
	// exporter run on the machine's own GPUs in place of the fake driver: Lab.Graph is then the graph that
	// the exporter has published.
	Library string
	// Chart has Helm install scheduler, exporter and agent, which then are pods. Agent and NVIDIA are
	// true with it, and the scheduler that Lab.Scheduler is is kube-scheduler's stand-in.
	Chart *Chart
	// Controllers runs the cluster's controllers, as with Chart: namespaces that are deleted go.
	Controllers bool
	// Scheduler changes the shipped KubeSchedulerConfiguration, if set.
	Scheduler func(fields map[string]any)
	// Dir keeps the node's logs and is left in place; a temporary folder when empty.
	Dir string
	// Log receives the output of all programs outside the node; nil discards it.
	Log io.Writer
	// Progress receives descriptions of the steps, if set.
	Progress func(what string)
}
