// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is Kueue's API group.
const GroupName = "kueue.x-k8s.io"

// Names of the kinds.
const (
	ResourceFlavorKind        = "ResourceFlavor"
	CohortKind                = "Cohort"
	ClusterQueueKind          = "ClusterQueue"
	LocalQueueKind            = "LocalQueue"
	WorkloadKind              = "Workload"
	WorkloadPriorityClassKind = "WorkloadPriorityClass"
	AdmissionCheckKind        = "AdmissionCheck"
)

// Labels and annotations that Kueue reads on jobs and pods.
const (
	// LabelQueue names the LocalQueue of a job or pod.
	LabelQueue = GroupName + "/queue-name"
	// LabelPriorityClass names the WorkloadPriorityClass of a job.
	LabelPriorityClass = GroupName + "/priority-class"
	// LabelPodSet is on the pods of admitted jobs; its value is the PodSet's name.
	LabelPodSet = GroupName + "/podset"
	// LabelLocalQueue is on the pods of admitted jobs; its value is the LocalQueue's name.
	LabelLocalQueue = GroupName + "/local-queue-name"
	// GateAdmission is the scheduling gate of pods that wait for quota.
	GateAdmission = GroupName + "/admission"
	// AnnotationWorkload names the Workload of a pod.
	AnnotationWorkload = GroupName + "/workload"
	// LabelPodGroup names the group, and the Workload, of pods that are admitted together.
	LabelPodGroup = GroupName + "/pod-group-name"
	// LabelMaxExecutionSeconds is for how long a job may be admitted in all.
	LabelMaxExecutionSeconds = GroupName + "/max-exec-time-seconds"
	// AnnotationAdmissionGatedBy names who has to let a job in before Kueue looks at it. It can
	// be given only when the job is made.
	AnnotationAdmissionGatedBy = GroupName + "/admission-gated-by"
)

var (
	// SchemeGroupVersion is the group and version of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta2"}
	// SchemeBuilder collects the registration functions of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&ResourceFlavor{}, &ResourceFlavorList{}, &Cohort{}, &CohortList{}, &ClusterQueue{}, &ClusterQueueList{},
		&LocalQueue{}, &LocalQueueList{}, &Workload{}, &WorkloadList{},
		&WorkloadPriorityClass{}, &WorkloadPriorityClassList{}, &AdmissionCheck{}, &AdmissionCheckList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
