// SPDX-License-Identifier: Apache-2.0

package podrequest

// Pod annotations that users set.
const (
	TopologyPolicyKey   = "nvtopo.dev/topology-policy"
	NUMAAffinityKey     = "nvtopo.dev/numa-affinity"
	MinLinkKey          = "nvtopo.dev/min-link"
	MinBandwidthKey     = "nvtopo.dev/min-bandwidth"
	GPUModelKey         = "nvtopo.dev/gpu-model"
	MinGPUMemoryKey     = "nvtopo.dev/min-gpu-memory"
	AllowMixedModelsKey = "nvtopo.dev/allow-mixed-models"
	MessageSizeKey      = "nvtopo.dev/message-size" // bytes that each GPU sends in an all-reduce
	MovableKey          = "nvtopo.dev/movable"      // false: the pod is not to be moved for others
)

// PromisedModelKey is the GPU model that the placement check of pools promised the members of a gang, as
// their nodes' graphs name it. Kueue writes it on the pods when it admits them. Members get this model
// before any other; it has no effect on single pods. Unlike GPUModelKey it is a whole name, and valid for
// some time only: users set GPUModelKey.
const PromisedModelKey = "nvtopo.dev/promised-gpu-model"

// Other systems' keys for the same settings.
var (
	policyAliases   = []string{"scheduling.k8s.io/topology-policy", "topology.kubernetes.io/policy"}
	affinityAliases = []string{"scheduling.k8s.io/numa-affinity"}
)

// hamiPolicyKey with the value hamiTopologyAware means best-effort.
const (
	hamiPolicyKey     = "hami.io/gpu-scheduler-policy"
	hamiTopologyAware = "topology-aware"
)
