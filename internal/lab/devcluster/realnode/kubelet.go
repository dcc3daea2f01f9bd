// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// Paths on the node that kubelet fixes.
const (
	// PluginDir is where device plugins register and serve.
	PluginDir = kubeletDir + "/device-plugins"
	// Checkpoint is the device manager's checkpoint file.
	Checkpoint = PluginDir + "/kubelet_internal_checkpoint"
	// PodResourcesSocket serves the PodResources API.
	PodResourcesSocket = kubeletDir + "/pod-resources/kubelet.sock"
)

// kubeletConfig is a KubeletConfiguration that leaves the machine alone: no
// cgroups but below one of ours, no firewall rules, no eviction because the
// machine's disk is full.
func (n *Node) kubeletConfig(port int) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "127.0.0.1", "port": port, "healthzPort": 0, "readOnlyPort": 0,
		// Reachable from this machine only, and by tests that have no credentials for it.
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},

		"cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.cgroup, "cgroupsPerQOS": true, "enforceNodeAllocatable": []string{},
		"failCgroupV1": false, "failSwapOn": false, "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
		"containerRuntimeEndpoint": "unix://" + containerdSocket, "imageServiceEndpoint": "unix://" + containerdSocket,
		"resolvConf": "", "volumePluginDir": kubeletDir + "/volumeplugins", "volumeStatsAggPeriod": "-1s",
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]any{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"maxPods": defaultMaxPods, "nodeStatusUpdateFrequency": "1s", "serializeImagePulls": false,
		// The defaults (50, 100) are for nodes of large clusters; here they would dominate the tests'
		// measurements.
		"kubeAPIQPS": 500, "kubeAPIBurst": 1000,
	}
}

// startKubelet starts kubelet and waits until its Node is ready.
func (n *Node) startKubelet(ctx context.Context) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	fields := n.kubeletConfig(port)
	maps.Copy(fields, n.cfg.Kubelet)
	config, err := yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write kubelet's configuration: %w", err)
	}
	path := n.KubeletConfig()
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fmt.Errorf("write kubelet's configuration: %w", err)
	}
	args := []string{"--config=" + path, "--kubeconfig=" + n.kubeconfig, "--hostname-override=" + n.cfg.Name, "-v=2"}
	if n.cfg.Network {
		args = append(args, "--node-ip="+nodeAddress)
	}
	n.kubelet, err = n.Run(Program{Name: "kubelet", Path: filepath.Join(n.cfg.Bin, n.cfg.KubeletProgram), Args: args})
	if err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// KubeletConfig returns the path of kubelet's configuration file, the same on the node and outside.
func (n *Node) KubeletConfig() string { return filepath.Join(n.dir, "kubelet.yaml") }

// WaitReady waits until the Node object is ready.
func (n *Node) WaitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, kubeletStart, true, func(ctx context.Context) (bool, error) {
		if how := n.kubelet.Ended(); how != "" {
			return false, n.explain(n.kubelet, how)
		}
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
		if err != nil {
			last = err
			return false, nil //nolint:nilerr // kubelet has not registered yet
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady {
				last = errors.New(c.Reason + ": " + c.Message)
				return c.Status == v1.ConditionTrue, nil
			}
		}
		last = errors.New("its Node has no condition Ready")
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for kubelet: %w", errors.Join(err, last))
	}
	return nil
}
