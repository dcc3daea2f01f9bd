// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
)

const (
	agentBinary = "nvtopo-node-agent"
	// RegistrySocket is the socket that the inner plugin registers with when the agent is between it and
	// kubelet: the value of its KUBELET_SOCKET.
	RegistrySocket = realnode.PluginDir + "/nvtopo/kubelet.sock"
)

// startPlugin starts the inner device plugin, the project's own in place of the vendor's.
func (l *Lab) startPlugin(context.Context) (err error) {
	args := []string{"simulate-plugin", "--node-name=" + l.cfg.Node, "--machine=" + Machine, "--resource=" + Resource}
	if l.cfg.Agent {
		args = append(args, "--kubelet-socket="+RegistrySocket)
	}
	l.Plugin, err = l.Node.Run(realnode.Program{Name: "device-plugin", Path: filepath.Join(l.cfg.Bin, agentBinary), Args: args})
	return err
}

// startAgent starts the agent with the rights of its service account.
func (l *Lab) startAgent(ctx context.Context) error {
	kubeconfig := filepath.Join(l.Node.Dir(), "agent.kubeconfig")
	if err := l.writeKubeconfig(ctx, agentAccount, kubeconfig); err != nil {
		return err
	}
	args := []string{
		"--node-name=" + l.cfg.Node, "--namespace=" + Namespace, "--kubeconfig=" + kubeconfig,
		"--kubelet-config=" + l.Node.KubeletConfig(), "--nri-socket=" + l.Node.NRISocket(), "-v=2",
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	l.agentPort = port
	args = slices.Concat(args, metricsAt(port), l.cfg.AgentArgs)
	l.Agent, err = l.Node.Run(realnode.Program{Name: "node-agent", Path: filepath.Join(l.cfg.Bin, agentBinary), Args: args})
	return err
}

// metricsAt returns the flags that make the project's programs serve their metrics to every client on the
// machine.
func metricsAt(port int) []string {
	return []string{"--metrics-address=127.0.0.1:" + strconv.Itoa(port), "--metrics-insecure"}
}

// writeKubeconfig writes a service account's kubeconfig: a token bound to the
// node, as the DaemonSet's pod would have.
func (l *Lab) writeKubeconfig(ctx context.Context, account, path string) error {
	cfg, err := l.Cluster.NodeBoundConfig(ctx, Namespace, account, l.cfg.Node)
	if err != nil {
		return err
	}
	if err := devcluster.WriteKubeconfigOf(cfg, path); err != nil {
		return fmt.Errorf("%s: %w", account, err)
	}
	return nil
}
