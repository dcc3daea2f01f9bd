// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet/kubeletconf"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// buildSettings creates the reader of kubelet's configuration.
func (a *Agent) buildSettings(config *rest.Config, clk clock.WithTicker) (err error) {
	a.settings, err = kubeletconf.New(kubeletconf.Config{
		Node: a.cfg.Node, File: a.cfg.KubeletConfig, GetNode: a.getNode, REST: config, RootDir: a.cfg.KubeletDir,
		Allocatable: a.kubelet.AllocatableCPUs, Online: a.onlineCPUs, Unaligned: a.unaligned,
	}, clk)
	if err != nil {
		return fmt.Errorf("read kubelet's configuration: %w", err)
	}
	return nil
}

// getNode reads the agent's Node, which has kubelet's address and version.
func (a *Agent) getNode(ctx context.Context) (*v1.Node, error) {
	node, err := a.kube.CoreV1().Nodes().Get(ctx, a.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", a.cfg.Node, err)
	}
	return node, nil
}

// onlineCPUs reads the online CPUs from sysfs.
func (a *Agent) onlineCPUs() (nvtopo.CPUSet, error) {
	data, err := os.ReadFile(filepath.Join(a.cfg.SysfsRoot, "devices/system/cpu/online"))
	if err != nil {
		return nil, fmt.Errorf("online CPUs: %w", err)
	}
	return nvtopo.ParseCPUList(strings.TrimSpace(string(data)))
}

// unaligned returns the resources whose NUMA nodes the agent hides from kubelet.
func (a *Agent) unaligned() []string {
	if a.cfg.Topology != StripTopology {
		return nil
	}
	var out []string
	for _, r := range a.interposer.Resources() {
		out = append(out, r.Resource)
	}
	return out
}
