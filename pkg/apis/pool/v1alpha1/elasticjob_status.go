// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobPhase is the state of an ElasticJob in one word.
//
// +kubebuilder:validation:Enum=Pending;Queued;Running;Preempted;Suspended;Completed;Failed
type JobPhase string

// Phases of an ElasticJob.
const (
	// JobPending: nothing has been made of it yet.
	JobPending JobPhase = "Pending"
	// JobQueued: it waits for quota.
	JobQueued JobPhase = "Queued"
	// JobRunning: it has quota for its minReplicas.
	JobRunning JobPhase = "Running"
	// JobPreempted: it lost its quota to others, and its pods are going.
	JobPreempted JobPhase = "Preempted"
	// JobSuspended: spec.suspend keeps it from starting.
	JobSuspended JobPhase = "Suspended"
	// JobCompleted: its minReplicas have all succeeded.
	JobCompleted JobPhase = "Completed"
	// JobFailed: it will not be tried again.
	JobFailed JobPhase = "Failed"
)

// Condition types of an ElasticJob.
const (
	// ConditionAdmitted is true while the job has quota for its minReplicas.
	ConditionAdmitted = "Admitted"
	// ConditionProtectedCapacityGranted is true while a job that is not preemptible has its
	// part of the pool for itself.
	ConditionProtectedCapacityGranted = "ProtectedCapacityGranted"
	// ConditionScaled is true while the job has maxReplicas; its reason says why it has fewer.
	ConditionScaled = "Scaled"
	// ConditionTemplateValid is true while pods can be made of the template.
	ConditionTemplateValid = "TemplateValid"
	// ConditionComplete is true once the job has succeeded.
	ConditionComplete = "Complete"
	// ConditionFailed is true once the job has failed.
	ConditionFailed = "Failed"
)

// ReasonStaticRendezvous of ConditionScaled: the replicas are told how many there are when they
// start, so that none can join.
const ReasonStaticRendezvous = "StaticRendezvous"

// ElasticJobStatus is what has become of the job.
type ElasticJobStatus struct {
	// observedGeneration is the generation of spec that the rest of status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the state in one word.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// replicas have quota.
	// +optional
	Replicas int32 `json:"replicas"`
	// readyReplicas run and are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// extraReplicas are those of replicas beyond minReplicas.
	// +optional
	ExtraReplicas int32 `json:"extraReplicas"`
	// preemptions is how often others had the job evicted.
	// +optional
	Preemptions int32 `json:"preemptions"`
	// tenant is whose quota counts.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// selector picks the job's pods, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`
	// startTime is when the job first had quota.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when it had succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// conditions of the job.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
