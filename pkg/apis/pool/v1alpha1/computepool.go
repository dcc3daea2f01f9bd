// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ComputePool is a set of nodes whose GPUs tenants share.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=computepools,singular=computepool,shortName=cp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.poolType`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.totalCapacity`
// +kubebuilder:printcolumn:name="Reserved",type=integer,JSONPath=`.status.reservedCapacity`
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=`.status.allocatedCapacity`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableCapacity`
// +kubebuilder:printcolumn:name="Used %",type=integer,JSONPath=`.status.utilizationPercent`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`,priority=1
// +kubebuilder:printcolumn:name="Stop",type=string,JSONPath=`.spec.stopPolicy`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: at most 63 of a-z, 0-9 and -, because labels have it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'default'",message="metadata.name: default is the queue of jobs without devices"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.queues) || oldSelf.hasValue() && has(oldSelf.value().spec.queues) && size(oldSelf.value().spec.queues) >= size(self.spec.queues) || self.spec.queues.all(q, size(self.metadata.name) + size(q.name) < 63)",optionalOldSelf=true,fieldPath=".spec.queues",message="queues: jobs name a queue POOL.NAME in a label, so that both names have at most 62 characters together"
type ComputePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ComputePoolSpec   `json:"spec"`
	Status ComputePoolStatus `json:"status,omitempty"`
}

// ComputePoolList is a list of ComputePool.
//
// +kubebuilder:object:root=true
type ComputePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ComputePool `json:"items"`
}

// PoolType says of which kind a pool's devices are.
//
// +kubebuilder:validation:Enum=gpu;npu;mixed
type PoolType string

// Types of a pool.
const (
	PoolGPU   PoolType = "gpu"
	PoolNPU   PoolType = "npu"
	PoolMixed PoolType = "mixed"
)

// Hierarchy says which of the two lists is the outer one where a pool has both.
//
// +kubebuilder:validation:Enum=TenantFirst;QueueFirst
type Hierarchy string

// Orders of quotas and queues.
const (
	TenantFirst Hierarchy = "TenantFirst"
	QueueFirst  Hierarchy = "QueueFirst"
)

// StopPolicy stops admission.
//
// +kubebuilder:validation:Enum=None;Hold;HoldAndDrain
type StopPolicy string

// What is stopped.
const (
	// StopNone: jobs are admitted.
	StopNone StopPolicy = "None"
	// StopHold: no further job is admitted; what runs goes on.
	StopHold StopPolicy = "Hold"
	// StopHoldAndDrain: no further job is admitted, and what runs is evicted.
	StopHoldAndDrain StopPolicy = "HoldAndDrain"
)

// DefaultMaxTerminationGracePeriodSeconds is maxTerminationGracePeriodSeconds of a pool that does not
// say it.
const DefaultMaxTerminationGracePeriodSeconds = 600

// ComputePoolSpec is what is in the pool and who may use how much of it. All amounts are whole
// devices.
//
// +kubebuilder:validation:XValidation:rule="!has(self.quotas) || self.quotas.all(q, !has(q.limit) || q.limit <= self.capacity.total)",fieldPath=".quotas",message="quotas: limit must be at most capacity.total"
// +kubebuilder:validation:XValidation:rule="!has(self.quotas) || self.quotas.map(q, has(q.guaranteed) ? q.guaranteed : 0).sum() <= self.capacity.total - (has(self.capacity.reserved) ? self.capacity.reserved : 0)",fieldPath=".quotas",message="quotas: the sum of guaranteed must be at most capacity.total less capacity.reserved"
// +kubebuilder:validation:XValidation:rule="!has(self.defaultQuota) || !has(self.defaultQuota.limit) || self.defaultQuota.limit <= self.capacity.total",fieldPath=".defaultQuota.limit",message="defaultQuota.limit: must be at most capacity.total"
// +kubebuilder:validation:XValidation:rule="!has(self.queues) || self.queues.all(q, !has(q.maxCapacity) || q.maxCapacity <= self.capacity.total)",fieldPath=".queues",message="queues: maxCapacity must be at most capacity.total"
// +kubebuilder:validation:XValidation:rule="!has(self.queues) || self.queues.map(q, has(q.guaranteedCapacity) ? q.guaranteedCapacity : 0).sum() <= self.capacity.total - (has(self.capacity.reserved) ? self.capacity.reserved : 0)",fieldPath=".queues",message="queues: the sum of guaranteedCapacity must be at most capacity.total less capacity.reserved"
type ComputePoolSpec struct {
	// poolType says which extended resources count where resources names none: for gpu
	// nvidia.com/gpu and amd.com/gpu, for npu huawei.com/Ascend910B and habana.ai/gaudi, for
	// mixed all of them.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="poolType: cannot be changed"
	PoolType PoolType `json:"poolType"`
	// nodeSelector picks the pool's nodes by their labels; absent, it is the label
	// pool.nvtopo.dev/pool with the pool's name. A node is in one pool at most.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="nodeSelector: keys of at most 317 and values of at most 63 characters"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// resources are the extended resources that count, in place of those of poolType.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9.-]+/[A-Za-z0-9._-]+$`
	Resources []string `json:"resources,omitempty"`
	// capacity is how much the pool has.
	Capacity PoolCapacity `json:"capacity"`
	// virtualization gives out parts of devices in place of whole ones.
	// +optional
	Virtualization *Virtualization `json:"virtualization,omitempty"`
	// quotas are the shares of tenants. A tenant that is not listed has defaultQuota, and
	// without that none.
	// +optional
	// +listType=map
	// +listMapKey=tenant
	// +kubebuilder:validation:MaxItems=64
	Quotas []TenantQuota `json:"quotas,omitempty"`
	// defaultQuota is what each tenant has that quotas does not list.
	// +optional
	DefaultQuota *DefaultQuota `json:"defaultQuota,omitempty"`
	// queues are the pool's queues by kind of work. Without them each tenant has one.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Queues []PoolQueue `json:"queues,omitempty"`
	// hierarchy says what is shared out first where there are both quotas and queues.
	// +optional
	// +kubebuilder:default=TenantFirst
	Hierarchy Hierarchy `json:"hierarchy,omitempty"`
	// fairShare is about what is left beyond the guarantees.
	// +optional
	FairShare *FairShare `json:"fairShare,omitempty"`
	// maxTerminationGracePeriodSeconds is the longest terminationGracePeriodSeconds of a tenant's
	// pod. Until a pod has ended it counts for the tenant's limit, and nobody else has its devices.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	MaxTerminationGracePeriodSeconds int64 `json:"maxTerminationGracePeriodSeconds,omitempty"`
	// stopPolicy stops the pool as a whole.
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`
}

// PoolCapacity is how much a pool has, in devices.
//
// +kubebuilder:validation:XValidation:rule="!has(self.reserved) || self.reserved <= self.total",fieldPath=".reserved",message="capacity.reserved: must be at most capacity.total"
type PoolCapacity struct {
	// total is how many devices there should be. Where the nodes have another number, the
	// smaller one counts, and CapacityMismatch says so.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Total int32 `json:"total"`
	// reserved is how many of them no job gets, as room for failures; 10 to 20 % is usual.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Reserved int32 `json:"reserved,omitempty"`
}

// VirtualizationStrategy is how devices are divided.
//
// +kubebuilder:validation:Enum=mig;time-slicing;vgpu
type VirtualizationStrategy string

// Ways to divide devices.
const (
	StrategyMIG         VirtualizationStrategy = "mig"
	StrategyTimeSlicing VirtualizationStrategy = "time-slicing"
	StrategyVGPU        VirtualizationStrategy = "vgpu"
)

// Virtualization says how the pool's devices are divided. NVIDIA's managers on the nodes do it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || has(self.strategy)",fieldPath=".strategy",message="virtualization.strategy: is needed where virtualization is enabled"
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || has(self.strategy) && self.strategy != 'time-slicing'",fieldPath=".profile",message="virtualization.profile: is for the strategies mig and vgpu"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || has(self.strategy) && self.strategy == 'time-slicing'",fieldPath=".replicas",message="virtualization.replicas: is for the strategy time-slicing"
type Virtualization struct {
	// enabled says that devices are to be divided.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// strategy is how.
	// +optional
	Strategy VirtualizationStrategy `json:"strategy,omitempty"`
	// profile is the name under which the nodes' manager knows the wanted parts, for example
	// all-3g.40gb. With mig and no profile no node is changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Profile string `json:"profile,omitempty"`
	// replicas is how many containers take turns on a device.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=64
	Replicas int32 `json:"replicas,omitempty"`
}

// TenantQuota is the share of one tenant.
//
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteed) || !has(self.limit) || self.guaranteed <= self.limit",fieldPath=".guaranteed",message="guaranteed: must be at most limit"
// +kubebuilder:validation:XValidation:rule="!has(self.protectedLimit) || !has(self.limit) || self.protectedLimit <= self.limit",fieldPath=".protectedLimit",message="protectedLimit: must be at most limit"
type TenantQuota struct {
	// tenant is the value of the label pool.nvtopo.dev/tenant of the tenant's namespaces.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Tenant string `json:"tenant"`
	// limit is the most that the tenant may hold; absent, it is what the pool has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Limit *int32 `json:"limit,omitempty"`
	// guaranteed is what the tenant gets whenever it asks. Others may borrow it until then.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Guaranteed int32 `json:"guaranteed,omitempty"`
	// protectedLimit is the most that the tenant's jobs with preemptible: false may hold together;
	// absent, it is what is guaranteed. More of them is taken from what all tenants share, and comes
	// back only when they end.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ProtectedLimit *int32 `json:"protectedLimit,omitempty"`
	// weight is the tenant's part of what is left beyond the guarantees, beside the weights
	// of the others.
	// +optional
	// +kubebuilder:default=1
	Weight Weight `json:"weight,omitempty"`
}

// DefaultQuota is the share of each tenant that is not listed. It guarantees nothing, because
// nobody knows how many tenants there will be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.protectedLimit) || !has(self.limit) || self.protectedLimit <= self.limit",fieldPath=".protectedLimit",message="protectedLimit: must be at most limit"
type DefaultQuota struct {
	// limit as in quotas.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Limit *int32 `json:"limit,omitempty"`
	// protectedLimit as in quotas; absent, it is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ProtectedLimit *int32 `json:"protectedLimit,omitempty"`
	// weight as in quotas.
	// +optional
	// +kubebuilder:default=1
	Weight Weight `json:"weight,omitempty"`
}

// FairShare is about what is left beyond the guarantees.
type FairShare struct {
	// enabled shares it by weight. False is the same as one weight for all tenants and queues: what
	// is left is shared equally among those who ask, each up to its limit.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}
