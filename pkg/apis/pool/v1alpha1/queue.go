// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// QueuePolicy is the order in which a queue's jobs are admitted.
//
// +kubebuilder:validation:Enum=fifo;priority;fair_share;capacity
type QueuePolicy string

// Policies of a queue.
const (
	// QueueFIFO: in the order of their arrival. A job that does not fit holds back those
	// behind it.
	QueueFIFO QueuePolicy = "fifo"
	// QueuePriority: by priority, then by arrival. A job that does not fit holds nobody back.
	// The queue borrows with weight 1.
	QueuePriority QueuePolicy = "priority"
	// QueueFairShare: as QueuePriority, and what the queue borrows is shared by weight.
	QueueFairShare QueuePolicy = "fair_share"
	// QueueCapacity: as QueuePriority, and what the queue borrows is shared in proportion to
	// guaranteedCapacity, as capacity schedulers do. A queue that is guaranteed nothing counts as
	// one that is guaranteed 1. weight has no effect.
	QueueCapacity QueuePolicy = "capacity"
)

// QueuePreemption says whether a queue's jobs may have others evicted.
//
// +kubebuilder:validation:Enum=PreemptLowerPriority;Never
type QueuePreemption string

// What a queue's jobs may do to others.
const (
	PreemptLowerPriority QueuePreemption = "PreemptLowerPriority"
	PreemptNever         QueuePreemption = "Never"
)

// PoolQueue is one queue of a pool.
//
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteedCapacity) || !has(self.maxCapacity) || self.guaranteedCapacity <= self.maxCapacity",fieldPath=".guaranteedCapacity",message="guaranteedCapacity: must be at most maxCapacity"
// +kubebuilder:validation:XValidation:rule="!has(self.protectedCapacity) || !has(self.maxCapacity) || self.protectedCapacity <= self.maxCapacity",fieldPath=".protectedCapacity",message="protectedCapacity: must be at most maxCapacity"
type PoolQueue struct {
	// name of the queue. Jobs ask for it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// policy is the order in which its jobs are admitted.
	// +optional
	// +kubebuilder:default=fair_share
	Policy QueuePolicy `json:"policy,omitempty"`
	// priority is added to that of each of its jobs.
	// +optional
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
	// maxCapacity is the most that its jobs may hold together; absent, it is what the pool has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxCapacity *int32 `json:"maxCapacity,omitempty"`
	// guaranteedCapacity is what its jobs get whenever they ask.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	GuaranteedCapacity int32 `json:"guaranteedCapacity,omitempty"`
	// protectedCapacity is the most that its jobs with preemptible: false may hold together; absent,
	// it is what is guaranteed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ProtectedCapacity *int32 `json:"protectedCapacity,omitempty"`
	// weight is the queue's part of what is left beyond the guarantees, with policy fair_share.
	// +optional
	// +kubebuilder:default=1
	Weight Weight `json:"weight,omitempty"`
	// preemptionPolicy says whether its jobs may have others evicted.
	// +optional
	// +kubebuilder:default=PreemptLowerPriority
	PreemptionPolicy QueuePreemption `json:"preemptionPolicy,omitempty"`
	// tenants may use the queue; absent, all of the pool's may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Tenants []string `json:"tenants,omitempty"`
	// reclaimable says that other queues may borrow what this one does not use.
	// +optional
	// +kubebuilder:default=true
	Reclaimable *bool `json:"reclaimable,omitempty"`
	// stopPolicy stops the queue.
	// +optional
	// +kubebuilder:default=None
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`
}
