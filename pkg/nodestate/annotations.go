// SPDX-License-Identifier: Apache-2.0

package nodestate

import "strings"

// Pod annotations that users set.
const (
	TopologyPolicyKey   = "nvtopo.dev/topology-policy"
	NUMAAffinityKey     = "nvtopo.dev/numa-affinity"
	MinLinkKey          = "nvtopo.dev/min-link"
	MinBandwidthKey     = "nvtopo.dev/min-bandwidth"
	GPUModelKey         = "nvtopo.dev/gpu-model"
	MinGPUMemoryKey     = "nvtopo.dev/min-gpu-memory"
	AllowMixedModelsKey = "nvtopo.dev/allow-mixed-models"
)

// Other names under which users of other systems set the same things.
var (
	policyAliases   = []string{"scheduling.k8s.io/topology-policy", "topology.kubernetes.io/policy"}
	affinityAliases = []string{"scheduling.k8s.io/numa-affinity"}
)

// hamiPolicyKey with the value hamiTopologyAware asks for best-effort.
const (
	hamiPolicyKey     = "hami.io/gpu-scheduler-policy"
	hamiTopologyAware = "topology-aware"
)

// Pod annotations that only the scheduler and its controller write.
const (
	AllocationKey    = "nvtopo.dev/allocation"
	GPUIDsKey        = "nvtopo.dev/gpu-ids"
	GPUIndicesKey    = "nvtopo.dev/gpu-indices"
	NUMANodeKey      = "nvtopo.dev/numa-node"
	CPUSetKey        = "nvtopo.dev/cpuset"
	LinkClassKey     = "nvtopo.dev/link-class"
	RingBandwidthKey = "nvtopo.dev/ring-bandwidth"
	GPUIDsAlias      = "scheduling.k8s.io/gpu-ids"
	NUMANodeAlias    = "scheduling.k8s.io/numa-node"
)

// CorrectionManager is the manager of fields under which annotations are corrected
// to what kubelet recorded. It tells such an allocation from one that was chosen.
const CorrectionManager = "nvtopo-controller"

// OutputKeys lists the exact keys of the pod annotations that the scheduler
// writes; a key that begins with GPUIDsKey and a dot is one as well.
func OutputKeys() []string {
	return []string{
		AllocationKey, GPUIDsKey, GPUIndicesKey, NUMANodeKey, CPUSetKey, LinkClassKey, RingBandwidthKey,
		GPUIDsAlias, NUMANodeAlias,
	}
}

// IsOutputKey reports whether only the scheduler may write the annotation key.
func IsOutputKey(key string) bool {
	switch key {
	case AllocationKey, GPUIDsKey, GPUIndicesKey, NUMANodeKey, CPUSetKey, LinkClassKey, RingBandwidthKey,
		GPUIDsAlias, NUMANodeAlias:
		return true
	}
	return strings.HasPrefix(key, GPUIDsKey+".")
}
