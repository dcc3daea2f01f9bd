// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceFlavor is a kind of node. A pool has one.
//
// +kubebuilder:object:root=true
type ResourceFlavor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceFlavorSpec `json:"spec,omitzero"`
}

// ResourceFlavorList is a list of ResourceFlavor.
//
// +kubebuilder:object:root=true
type ResourceFlavorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceFlavor `json:"items"`
}

// ResourceFlavorSpec says which nodes.
type ResourceFlavorSpec struct {
	// NodeLabels become the node selector of the pods that are admitted.
	NodeLabels  map[string]string `json:"nodeLabels,omitempty"`
	Tolerations []v1.Toleration   `json:"tolerations,omitempty"`
}

// Cohort is ClusterQueues that lend each other quota. A pool is a Cohort without a parent.
//
// +kubebuilder:object:root=true
type Cohort struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CohortSpec `json:"spec,omitzero"`
}

// CohortList is a list of Cohort.
//
// +kubebuilder:object:root=true
type CohortList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cohort `json:"items"`
}

// CohortSpec is the quota that a Cohort adds to that of its members.
type CohortSpec struct {
	ParentName     string          `json:"parentName,omitempty"`
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`
	FairSharing    *FairSharing    `json:"fairSharing,omitempty"`
}

// FairSharing is a part of what is borrowed.
type FairSharing struct {
	// Weight is relative to that of the other members of the Cohort.
	Weight *resource.Quantity `json:"weight,omitempty"`
}

// ResourceGroup is quota by flavor and resource.
type ResourceGroup struct {
	CoveredResources []v1.ResourceName `json:"coveredResources,omitempty"`
	Flavors          []FlavorQuotas    `json:"flavors,omitempty"`
}

// FlavorQuotas is the quota of one flavor.
type FlavorQuotas struct {
	Name      string          `json:"name"`
	Resources []ResourceQuota `json:"resources,omitempty"`
}

// ResourceQuota is the quota of one resource.
type ResourceQuota struct {
	Name         v1.ResourceName   `json:"name"`
	NominalQuota resource.Quantity `json:"nominalQuota"`
	// BorrowingLimit is how much more than NominalQuota; nil: all that the Cohort has.
	BorrowingLimit *resource.Quantity `json:"borrowingLimit,omitempty"`
	// LendingLimit is how much of NominalQuota others may borrow; nil: all of it.
	LendingLimit *resource.Quantity `json:"lendingLimit,omitempty"`
}

// ClusterQueue admits workloads within a quota.
//
// +kubebuilder:object:root=true
type ClusterQueue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterQueueSpec   `json:"spec,omitzero"`
	Status ClusterQueueStatus `json:"status,omitzero"`
}

// ClusterQueueList is a list of ClusterQueue.
//
// +kubebuilder:object:root=true
type ClusterQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterQueue `json:"items"`
}

// Values of the fields of a ClusterQueueSpec.
const (
	StrictFIFO     = "StrictFIFO"
	BestEffortFIFO = "BestEffortFIFO"

	PreemptNever         = "Never"
	PreemptAny           = "Any"
	PreemptLowerPriority = "LowerPriority"
)

// ClusterQueueSpec is the quota and who may use it how.
type ClusterQueueSpec struct {
	CohortName        string                  `json:"cohortName,omitempty"`
	NamespaceSelector *metav1.LabelSelector   `json:"namespaceSelector,omitempty"`
	QueueingStrategy  string                  `json:"queueingStrategy,omitempty"`
	Preemption        *ClusterQueuePreemption `json:"preemption,omitempty"`
	StopPolicy        string                  `json:"stopPolicy,omitempty"`
	FairSharing       *FairSharing            `json:"fairSharing,omitempty"`
	ResourceGroups    []ResourceGroup         `json:"resourceGroups,omitempty"`

	AdmissionChecksStrategy *AdmissionChecksStrategy `json:"admissionChecksStrategy,omitempty"`
}

// AdmissionChecksStrategy names the checks that a workload has to pass after it has quota.
type AdmissionChecksStrategy struct {
	AdmissionChecks []AdmissionCheckRule `json:"admissionChecks,omitempty"`
}

// AdmissionCheckRule names one check.
type AdmissionCheckRule struct {
	Name string `json:"name"`
}

// ClusterQueuePreemption says whom a queue's workloads may have evicted.
type ClusterQueuePreemption struct {
	ReclaimWithinCohort string `json:"reclaimWithinCohort,omitempty"`
	WithinClusterQueue  string `json:"withinClusterQueue,omitempty"`
}

// ClusterQueueActive of a ClusterQueue is true while Kueue admits workloads in it, and false with the
// reason ClusterQueueStopped while its stop policy forbids that.
const (
	ClusterQueueActive  = "Active"
	ClusterQueueStopped = "Stopped"
)

// ClusterQueueStatus is what is used of the quota. Kueue writes it.
type ClusterQueueStatus struct {
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	FlavorsReservation []FlavorUsage      `json:"flavorsReservation,omitempty"`
	FlavorsUsage       []FlavorUsage      `json:"flavorsUsage,omitempty"`
	PendingWorkloads   int32              `json:"pendingWorkloads,omitempty"`
	ReservingWorkloads int32              `json:"reservingWorkloads,omitempty"`
	AdmittedWorkloads  int32              `json:"admittedWorkloads,omitempty"`
}

// FlavorUsage is what is used of a flavor.
type FlavorUsage struct {
	Name      string          `json:"name"`
	Resources []ResourceUsage `json:"resources,omitempty"`
}

// ResourceUsage is what is used of a resource.
type ResourceUsage struct {
	Name     v1.ResourceName   `json:"name"`
	Total    resource.Quantity `json:"total,omitempty"`
	Borrowed resource.Quantity `json:"borrowed,omitempty"`
}

// LocalQueue is a ClusterQueue as the jobs of a namespace name it.
//
// +kubebuilder:object:root=true
type LocalQueue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LocalQueueSpec `json:"spec,omitzero"`
}

// LocalQueueList is a list of LocalQueue.
//
// +kubebuilder:object:root=true
type LocalQueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LocalQueue `json:"items"`
}

// LocalQueueSpec names the ClusterQueue.
type LocalQueueSpec struct {
	ClusterQueue string `json:"clusterQueue,omitempty"`
	StopPolicy   string `json:"stopPolicy,omitempty"`
}

// QueueOf returns the name of the LocalQueue that let a pod in, as Kueue writes it on the pod; else of the one
// that it asks for. It is empty if the pod names none.
func QueueOf(pod *v1.Pod) string {
	return cmp.Or(pod.Labels[LabelLocalQueue], pod.Labels[LabelQueue])
}
