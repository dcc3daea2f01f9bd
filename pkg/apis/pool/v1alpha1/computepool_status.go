// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PoolPhase is the state of a pool in one word.
//
// +kubebuilder:validation:Enum=Pending;Ready;Degraded
type PoolPhase string

// Phases of a pool.
const (
	// PoolPending: its objects are not all there yet.
	PoolPending PoolPhase = "Pending"
	// PoolReady: jobs are admitted by its spec.
	PoolReady PoolPhase = "Ready"
	// PoolDegraded: jobs are admitted, but the pool cannot give all that its spec promises.
	PoolDegraded PoolPhase = "Degraded"
)

// Condition types of a ComputePool.
const (
	// ConditionReady is true while jobs are admitted by the pool's spec.
	ConditionReady = "Ready"
	// ConditionCapacityMismatch is true while the nodes have another number of devices than
	// capacity.total.
	ConditionCapacityMismatch = "CapacityMismatch"
	// ConditionGuaranteesOvercommitted is true while healthy devices are fewer than what is
	// guaranteed.
	ConditionGuaranteesOvercommitted = "GuaranteesOvercommitted"
	// ConditionVirtualizationApplied says whether the nodes' devices are divided as spec has it.
	ConditionVirtualizationApplied = "VirtualizationApplied"
	// ConditionReserveAdvice is true while capacity.reserved is outside of 10 to 20 %.
	ConditionReserveAdvice = "ReserveAdvice"
	// ConditionForeignUse is true while pods outside of tenants' namespaces hold the pool's
	// devices.
	ConditionForeignUse = "ForeignUse"
	// ConditionGuaranteesReduced is true while the pool has two levels and the inner list guarantees
	// more than the outer one, so that not all of it holds.
	ConditionGuaranteesReduced = "GuaranteesReduced"
	// ConditionNodesShared is true while nodeSelector picks nodes that another pool has. Such a
	// node counts in the first of its pools by name.
	ConditionNodesShared = "NodesShared"
	// ConditionSharesCut is true while the pool has more shares than status.shares takes.
	ConditionSharesCut = "SharesCut"
)

// ComputePoolStatus is what the pool has and who holds it, in whole devices.
type ComputePoolStatus struct {
	// observedGeneration is the generation of spec that the rest of status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the state in one word.
	// +optional
	Phase PoolPhase `json:"phase,omitempty"`
	// totalCapacity is how many devices count.
	// +optional
	TotalCapacity int32 `json:"totalCapacity"`
	// reservedCapacity is how many of them no job gets.
	// +optional
	ReservedCapacity int32 `json:"reservedCapacity"`
	// allocatedCapacity is how many live pods hold.
	// +optional
	AllocatedCapacity int32 `json:"allocatedCapacity"`
	// availableCapacity is how many devices jobs could get now, states.available: total less
	// reserved less allocated, without what failed or is in maintenance.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AvailableCapacity int32 `json:"availableCapacity"`
	// discovered is how many devices the pool's nodes have.
	// +optional
	Discovered int32 `json:"discovered"`
	// nodes is how many nodes the pool has.
	// +optional
	Nodes int32 `json:"nodes"`
	// readyNodes is how many of them take pods.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// utilizationPercent is states.allocated of what can be used: of total, without what failed
	// or is in maintenance and free.
	// +optional
	UtilizationPercent int32 `json:"utilizationPercent"`
	// states counts the devices by state.
	// +optional
	States *DeviceStates `json:"states,omitempty"`
	// shares is what each tenant, and each queue, may hold and holds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Shares []PoolShare `json:"shares,omitempty"`
	// conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeviceStates counts a pool's devices. Each is in one state.
type DeviceStates struct {
	// available may be given out.
	Available int32 `json:"available"`
	// allocated are held by live pods.
	Allocated int32 `json:"allocated"`
	// reserved are kept back.
	Reserved int32 `json:"reserved"`
	// maintenance are free, on nodes that are cordoned or have a taint whose name is maintenance,
	// with or without a domain, and the effect NoSchedule or NoExecute.
	Maintenance int32 `json:"maintenance"`
	// failed are unhealthy, or on nodes that are not ready.
	Failed int32 `json:"failed"`
}

// PoolShare is what a tenant, a queue, or a tenant in a queue may hold and holds.
type PoolShare struct {
	// tenant, absent where the share is that of a queue.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// queue, absent where the share is that of a tenant.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Queue string `json:"queue,omitempty"`
	// guaranteed as in spec.
	Guaranteed int32 `json:"guaranteed"`
	// pinned is what jobs hold that must not be preempted.
	Pinned int32 `json:"pinned"`
	// limit as in spec.
	Limit int32 `json:"limit"`
	// used is what jobs have quota for, whether they run or are about to.
	Used int32 `json:"used"`
	// borrowed is what of it is beyond guaranteed and pinned.
	Borrowed int32 `json:"borrowed"`
	// pending is how many jobs wait.
	Pending int32 `json:"pending"`
}
