// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// Labels that NVIDIA's managers read their settings from, and those that they write their state to.
const (
	// LabelMIG is read by NVIDIA's MIG manager; its value is a name in the manager's configuration.
	LabelMIG = "nvidia.com/mig.config"
	// LabelMIGState is the MIG manager's state: pending, rebooting, success or failed.
	LabelMIGState = "nvidia.com/mig.config.state"
	// LabelPlugin is read by NVIDIA's device plugin; its value is a key of the plugin's ConfigMap.
	LabelPlugin = "nvidia.com/device-plugin.config"
	// LabelVGPU is read by NVIDIA's vGPU device manager.
	LabelVGPU = "nvidia.com/vgpu.config"
	// LabelVGPUState is the vGPU device manager's state.
	LabelVGPUState = "nvidia.com/vgpu.config.state"
	// LabelUpgrade is the GPU Operator's state of the upgrade of a node's driver.
	LabelUpgrade = "nvidia.com/gpu-driver-upgrade-state"
	// LabelGPUCount is the number of a node's GPUs, set by NVIDIA's feature discovery.
	LabelGPUCount = "nvidia.com/gpu.count"
)

// MIGDisabled is the MIG manager's name for the configuration with whole GPUs.
const MIGDisabled = "all-disabled"

const prefixPlugin = "time-slicing-"

// PluginConfig returns the key, in the ConfigMap of NVIDIA's device plugin, of time slicing with that
// many replicas of a GPU.
func PluginConfig(replicas int32) string {
	return prefixPlugin + strconv.FormatInt(int64(replicas), 10)
}

// setting is how a node's devices are divided. The zero value is whole devices.
type setting struct {
	strategy v1alpha1.VirtualizationStrategy
	value    string // of the strategy's label; empty: no label
	replicas int32  // time-sliced replicas of each GPU
}

// wanted returns the setting that a pool's spec requests. If it requests a strategy without its
// parameters, it returns the reason and a message; the nodes are then left as they are.
func wanted(v *v1alpha1.Virtualization) (want setting, reason, message string) {
	if v == nil || !v.Enabled {
		return setting{}, "", ""
	}
	switch v.Strategy {
	case v1alpha1.StrategyTimeSlicing:
		if v.Replicas == 0 {
			return setting{}, ReasonReplicasMissing, "virtualization.replicas is not set: the nodes stay as they are"
		}
		return setting{strategy: v.Strategy, value: PluginConfig(v.Replicas), replicas: v.Replicas}, "", ""
	case v1alpha1.StrategyMIG, v1alpha1.StrategyVGPU:
		if v.Profile == "" {
			return setting{}, ReasonProfileMissing, "virtualization.profile is not set: the nodes stay as they are"
		}
		return setting{strategy: v.Strategy, value: v.Profile}, "", ""
	}
	return setting{}, "", "" // the API server refuses other strategies
}

// labelOf returns the label that a strategy's manager reads, and the one that it writes, if any.
func labelOf(s v1alpha1.VirtualizationStrategy) (label, state string) {
	switch s {
	case v1alpha1.StrategyMIG:
		return LabelMIG, LabelMIGState
	case v1alpha1.StrategyVGPU:
		return LabelVGPU, LabelVGPUState
	default:
		return LabelPlugin, ""
	}
}

// undone returns the setting with which a strategy's manager leaves the devices whole.
func undone(s v1alpha1.VirtualizationStrategy) setting {
	if s == v1alpha1.StrategyMIG {
		return setting{strategy: s, value: MIGDisabled}
	}
	return setting{strategy: s}
}

// on reports whether the node has the setting's label.
func (s setting) on(node *v1.Node) bool {
	label, _ := labelOf(s.strategy)
	return node.Labels[label] == s.value
}

// progress is a manager's progress on a node that has the label.
type progress int

const (
	working progress = iota
	done
	failed
)

// progress returns the state that the manager reports, or for the device plugin, which reports none, the
// one derived from kubelet's count: the plugin restarts with another number of devices.
func (s setting) progress(node *v1.Node) progress {
	if s.strategy == v1alpha1.StrategyTimeSlicing {
		return s.turns(node)
	}
	if s.value == "" {
		return done // the vGPU manager has no label to act on any more
	}
	_, label := labelOf(s.strategy)
	switch node.Labels[label] {
	case "success":
		return done
	case "failed":
		return failed
	}
	return working
}

// turns compares kubelet's count of devices with the plugin's setting. Capacity includes unhealthy
// devices. Without a label of the number of GPUs, any multiple of replicas is accepted; then a plugin
// that has not restarted may be taken for one that has: 32 are 8 GPUs with 4 replicas, or 16 with 2.
func (s setting) turns(node *v1.Node) progress {
	quantity := node.Status.Capacity[units.SharedGPU]
	shared, replicas := quantity.Value(), int64(s.replicas)
	if replicas == 0 {
		return doneIf(shared == 0)
	}
	if gpus, _ := gpusOf(node); gpus > 0 {
		return doneIf(shared == gpus*replicas)
	}
	return doneIf(shared > 0 && shared%replicas == 0)
}

// missing returns the counts that a node's time slicing waits for; empty if they are unknown.
func (s setting) missing(node *v1.Node) string {
	gpus, label := gpusOf(node)
	if s.replicas == 0 || gpus == 0 {
		return ""
	}
	quantity := node.Status.Capacity[units.SharedGPU]
	return fmt.Sprintf(": kubelet counts %d of %s, want %d for each of %d GPUs (%s)", quantity.Value(), units.SharedGPU, s.replicas, gpus, label)
}

// gpusOf returns the number of a node's GPUs, and the label that has it; 0 if none does.
func gpusOf(node *v1.Node) (gpus int64, label string) {
	for _, label := range []string{LabelGPUCount, topologyv1alpha1.LabelGPUCount} {
		if gpus, err := strconv.ParseInt(node.Labels[label], 10, 64); err == nil && gpus > 0 {
			return gpus, label
		}
	}
	return 0, ""
}

func doneIf(yes bool) progress {
	if yes {
		return done
	}
	return working
}
