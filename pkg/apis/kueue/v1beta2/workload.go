// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is what Kueue makes of a job: how many pods, in which queue, admitted or not.
//
// +kubebuilder:object:root=true
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WorkloadSpec   `json:"spec,omitzero"`
	Status WorkloadStatus `json:"status,omitzero"`
}

// WorkloadList is a list of Workload.
//
// +kubebuilder:object:root=true
type WorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Workload `json:"items"`
}

// WorkloadSpec is what the job asks for.
type WorkloadSpec struct {
	PodSets   []PodSet `json:"podSets,omitempty"`
	QueueName string   `json:"queueName,omitempty"`
	Priority  *int32   `json:"priority,omitempty"`
	// PriorityClassRef is the class that the priority is of.
	PriorityClassRef *PriorityClassRef `json:"priorityClassRef,omitempty"`
	// Active is false for a workload that must not have quota. Whoever sets it takes the quota
	// of a running job away.
	Active *bool `json:"active,omitempty"`
}

// PriorityClassRef names a WorkloadPriorityClass, or a PriorityClass of pods.
type PriorityClassRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// PodSet is pods of one template.
type PodSet struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// MinCount is how many may start where there is no quota for Count; nil: Count.
	MinCount *int32             `json:"minCount,omitempty"`
	Template v1.PodTemplateSpec `json:"template,omitzero"`
}

// Conditions of a Workload, and reasons of WorkloadEvicted.
const (
	WorkloadQuotaReserved = "QuotaReserved"
	WorkloadAdmitted      = "Admitted"
	WorkloadEvicted       = "Evicted"
	WorkloadPreempted     = "Preempted"
	WorkloadRequeued      = "Requeued"
	WorkloadPodsReady     = "PodsReady"
	WorkloadFinished      = "Finished"

	EvictedByPreemption       = "Preempted"
	EvictedByPodsReadyTimeout = "PodsReadyTimeout"
	EvictedByAdmissionCheck   = "AdmissionCheck"
	EvictedByStop             = "ClusterQueueStopped"
	EvictedByDeactivation     = "Deactivated"
	EvictedByMaxExecution     = "MaximumExecutionTimeExceeded" // Kueue puts DeactivatedDueTo before it
)

// WorkloadStatus is what became of it. Kueue writes it, but for the states of admission checks.
type WorkloadStatus struct {
	Conditions      []metav1.Condition    `json:"conditions,omitempty"`
	Admission       *Admission            `json:"admission,omitempty"`
	AdmissionChecks []AdmissionCheckState `json:"admissionChecks,omitempty"`
	RequeueState    *RequeueState         `json:"requeueState,omitempty"`
	SchedulingStats *SchedulingStats      `json:"schedulingStats,omitempty"`
	ReclaimablePods []ReclaimablePod      `json:"reclaimablePods,omitempty"`
}

// ReclaimablePod is how many pods of a PodSet need their quota no more.
type ReclaimablePod struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
}

// Admission is the quota that the workload has.
type Admission struct {
	ClusterQueue      string             `json:"clusterQueue"`
	PodSetAssignments []PodSetAssignment `json:"podSetAssignments,omitempty"`
}

// PodSetAssignment is the quota of a PodSet.
type PodSetAssignment struct {
	Name string `json:"name"`
	// Flavors names the ResourceFlavor of each resource: where the pods will go.
	Flavors       map[v1.ResourceName]string `json:"flavors,omitempty"`
	ResourceUsage v1.ResourceList            `json:"resourceUsage,omitempty"`
	Count         *int32                     `json:"count,omitempty"`
}

// CheckState is what an admission check says of a workload.
type CheckState string

// States of an admission check.
const (
	CheckPending  CheckState = "Pending"
	CheckReady    CheckState = "Ready"
	CheckRetry    CheckState = "Retry"
	CheckRejected CheckState = "Rejected"
)

// AdmissionCheckState is what one admission check says of a workload.
type AdmissionCheckState struct {
	Name               string      `json:"name"`
	State              CheckState  `json:"state"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	Message            string      `json:"message"`
	// RequeueAfterSeconds of CheckRetry is after how long the workload may be tried again.
	RequeueAfterSeconds *int32         `json:"requeueAfterSeconds,omitempty"`
	RetryCount          *int32         `json:"retryCount,omitempty"`
	PodSetUpdates       []PodSetUpdate `json:"podSetUpdates,omitempty"`
}

// PodSetUpdate is what a check adds to the pods when they start.
type PodSetUpdate struct {
	Name         string            `json:"name"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Tolerations  []v1.Toleration   `json:"tolerations,omitempty"`
}

// RequeueState is how often and until when an evicted workload has to wait.
type RequeueState struct {
	Count     *int32       `json:"count,omitempty"`
	RequeueAt *metav1.Time `json:"requeueAt,omitempty"`
}

// SchedulingStats counts evictions.
type SchedulingStats struct {
	Evictions []EvictionCount `json:"evictions,omitempty"`
}

// EvictionCount is how often a workload was evicted for a reason.
type EvictionCount struct {
	Reason          string `json:"reason"`
	UnderlyingCause string `json:"underlyingCause"`
	Count           int32  `json:"count"`
}

// WorkloadPriorityClass is a priority by name. It does not reach pods.
//
// +kubebuilder:object:root=true
type WorkloadPriorityClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Value       int32  `json:"value"`
	Description string `json:"description,omitempty"`
}

// WorkloadPriorityClassList is a list of WorkloadPriorityClass.
//
// +kubebuilder:object:root=true
type WorkloadPriorityClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadPriorityClass `json:"items"`
}

// AdmissionCheck is a check that a controller other than Kueue makes.
//
// +kubebuilder:object:root=true
type AdmissionCheck struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AdmissionCheckSpec   `json:"spec,omitzero"`
	Status AdmissionCheckStatus `json:"status,omitzero"`
}

// AdmissionCheckList is a list of AdmissionCheck.
//
// +kubebuilder:object:root=true
type AdmissionCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdmissionCheck `json:"items"`
}

// AdmissionCheckSpec names the controller.
type AdmissionCheckSpec struct {
	ControllerName string `json:"controllerName"`
}

// AdmissionCheckActive of an AdmissionCheck is true while its controller works. Kueue admits
// nothing to queues whose checks are not active.
const AdmissionCheckActive = "Active"

// AdmissionCheckStatus is whether the controller works.
type AdmissionCheckStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
