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
	MessageSizeKey      = "nvtopo.dev/message-size" // what each GPU sends in an all-reduce
	MovableKey          = "nvtopo.dev/movable"      // false: the pod is not to be moved for others
)

// PromisedModelKey is the GPU model that the placement check of pools promised the members of a gang,
// as their nodes' graphs name it. Kueue writes it on the pods when it admits them. Members get this
// model before any other; single pods do not heed it. Unlike GPUModelKey it is a whole name, and for
// some time only: who wants a model writes GPUModelKey.
const PromisedModelKey = "nvtopo.dev/promised-gpu-model"

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
