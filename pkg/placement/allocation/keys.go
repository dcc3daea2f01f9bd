// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Pod annotations that only the scheduler and its controller write.
const (
	Key              = "nvtopo.dev/allocation"
	GPUIDsKey        = "nvtopo.dev/gpu-ids"
	GPUIndicesKey    = "nvtopo.dev/gpu-indices"
	NUMANodeKey      = "nvtopo.dev/numa-node"
	CPUSetKey        = "nvtopo.dev/cpuset"
	LinkClassKey     = "nvtopo.dev/link-class"
	RingBandwidthKey = "nvtopo.dev/ring-bandwidth"
	DecisionKey      = "nvtopo.dev/decision"
	GPUIDsAlias      = "scheduling.k8s.io/gpu-ids"
	NUMANodeAlias    = "scheduling.k8s.io/numa-node"
)

// ConditionPlacedByCount is the condition of a pod that was bound to a node whose graph was not valid: no
// GPUs were chosen for it.
const ConditionPlacedByCount v1.PodConditionType = "nvtopo.dev/PlacedByCount"

// CorrectionManager is the field manager under which annotations are corrected to kubelet's record. It
// distinguishes such an allocation from a chosen one.
const CorrectionManager = "nvtopo-controller"

// OutputKeys lists the exact keys of the pod annotations that the scheduler
// writes; a key that begins with GPUIDsKey and a dot is one as well.
func OutputKeys() []string { return slices.Clone(outputKeys[:]) }

var outputKeys = [...]string{
	Key, GPUIDsKey, GPUIndicesKey, NUMANodeKey, CPUSetKey, LinkClassKey, RingBandwidthKey,
	DecisionKey, GPUIDsAlias, NUMANodeAlias,
}

// IsOutputKey reports whether only the scheduler may write the annotation key.
func IsOutputKey(key string) bool {
	return strings.HasPrefix(key, GPUIDsKey+".") || slices.Contains(outputKeys[:], key)
}

// isAlias reports whether the key is one of other systems.
func isAlias(key string) bool { return key == GPUIDsAlias || key == NUMANodeAlias }

// HasAliases reports whether the pod has annotations under the keys of other systems.
func HasAliases(pod *v1.Pod) bool {
	for _, key := range []string{GPUIDsAlias, NUMANodeAlias} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	return false
}
