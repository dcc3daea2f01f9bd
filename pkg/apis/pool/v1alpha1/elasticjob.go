// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticJob is a job of replicas that need each other, and of more that join while the pool
// has room.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=elasticjobs,singular=elasticjob,shortName=ej
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.scaling.maxReplicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.scaling.minReplicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.scaling.maxReplicas`
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queue`,priority=1
// +kubebuilder:printcolumn:name="Preemptible",type=boolean,JSONPath=`.spec.preemptible`,priority=1
// +kubebuilder:printcolumn:name="Preemptions",type=integer,JSONPath=`.status.preemptions`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$')",message="metadata.name: at most 52 of a-z, 0-9 and -, the first a letter, because a Service and the hosts of pods have it"
type ElasticJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ElasticJobSpec   `json:"spec"`
	Status ElasticJobStatus `json:"status,omitempty"`
}

// ElasticJobList is a list of ElasticJob.
//
// +kubebuilder:object:root=true
type ElasticJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticJob `json:"items"`
}

// ElasticJobSpec is what the job runs and how much of the pool it may hold.
type ElasticJobSpec struct {
	// pool is the name of the ComputePool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool: cannot be changed"
	Pool string `json:"pool"`
	// queue is one of the pool's queues, where it has any.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Queue string `json:"queue,omitempty"`
	// priority among the pool's jobs. The higher one starts first, and may have lower ones
	// evicted.
	// +optional
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
	// preemptible says that the job's minReplicas may be evicted for others. Replicas beyond
	// them always may.
	// +optional
	// +kubebuilder:default=true
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="preemptible: cannot be changed"
	Preemptible *bool `json:"preemptible,omitempty"`
	// scaling says how many replicas there are.
	Scaling Scaling `json:"scaling"`
	// maxRunSeconds ends the job, as failed, once it has run for so long.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	MaxRunSeconds *int32 `json:"maxRunSeconds,omitempty"`
	// suspend gives back all that the job holds, and keeps it from starting.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// placement is what the replicas ask of the network between them.
	// +optional
	Placement *JobPlacement `json:"placement,omitempty"`
	// template of the pods. What it asks for in GPUs is gpuPerReplica.
	//
	// The API server keeps it as it is: the schema of a pod alone would be larger than all
	// others. The condition TemplateValid says whether it is one. Programs patch an ElasticJob:
	// one that reads it into this type and writes it back adds empty fields to the template,
	// which is then another.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="template: cannot be changed"
	Template v1.PodTemplateSpec `json:"template"`
}

// Rendezvous is how the replicas find each other.
//
// +kubebuilder:validation:Enum=auto;static;elastic
type Rendezvous string

// Ways for replicas to find each other.
const (
	// RendezvousAuto: static if the template's command names a rank or a number of nodes, else
	// elastic.
	RendezvousAuto Rendezvous = "auto"
	// RendezvousStatic: there are minReplicas and never more, because each is told how many
	// there are when it starts.
	RendezvousStatic Rendezvous = "static"
	// RendezvousElastic: replicas may come and go.
	RendezvousElastic Rendezvous = "elastic"
)

// Scaling says how many replicas there are.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="scaling.minReplicas: must be at most scaling.maxReplicas"
// +kubebuilder:validation:XValidation:rule="self.maxReplicas - self.minReplicas <= 256",fieldPath=".maxReplicas",message="scaling.maxReplicas: must be at most 256 above scaling.minReplicas"
type Scaling struct {
	// minReplicas start together or not at all, and are placed as a gang.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="scaling.minReplicas: cannot be changed"
	MinReplicas int32 `json:"minReplicas"`
	// maxReplicas is how many there are while the pool has room. The scale subresource sets it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4352
	MaxReplicas int32 `json:"maxReplicas"`
	// gpuPerReplica is how many devices each replica has.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="scaling.gpuPerReplica: cannot be changed"
	GPUPerReplica int32 `json:"gpuPerReplica"`
	// rendezvous is how the replicas find each other.
	// +optional
	// +kubebuilder:default=auto
	Rendezvous Rendezvous `json:"rendezvous,omitempty"`
}

// JobPlacement is what the replicas ask of the network between them. The scheduler's
// annotations for gangs say the same of pods.
type JobPlacement struct {
	// strategy says what the job waits for most.
	// +optional
	// +kubebuilder:validation:Enum=communication_heavy;compute_heavy;mixed;communication-heavy;compute-heavy
	Strategy string `json:"strategy,omitempty"`
	// required is the level of the fabric that the gang must not leave, for example rack.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Required string `json:"required,omitempty"`
	// algorithm of the all-reduce by whose time places are compared, which is a ring. No other
	// is taken: the times by a tree and by recursive halving are only shown.
	// +optional
	// +kubebuilder:validation:Enum=ring;tree;recursive_halving;recursive-halving
	// +kubebuilder:validation:XValidation:rule="self == 'ring'",message="placement.algorithm: must be ring or absent: places are compared by the time of a ring. The times by a tree and by recursive halving are in the annotation nvtopo.dev/placement of the first replica's pod"
	Algorithm string `json:"algorithm,omitempty"`
	// dataSizeMB is what each device sends in that all-reduce, in megabytes: the annotation
	// nvtopo.dev/message-size of the job's pods. Absent, it is 1000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	DataSizeMB int32 `json:"dataSizeMB,omitempty"`
}
