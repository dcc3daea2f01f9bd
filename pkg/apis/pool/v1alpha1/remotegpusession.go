// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemoteGPUSession leases devices of a pool to a client elsewhere, as an inference server with
// an address and a token. No code or pickled object of the client is ever run.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=remotegpusessions,singular=remotegpusession,shortName=rgs
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.spec.gpus`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$')",message="metadata.name: at most 52 of a-z, 0-9 and -, the first a letter, because a Service has it"
type RemoteGPUSession struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RemoteGPUSessionSpec   `json:"spec"`
	Status RemoteGPUSessionStatus `json:"status,omitempty"`
}

// RemoteGPUSessionList is a list of RemoteGPUSession.
//
// +kubebuilder:object:root=true
type RemoteGPUSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemoteGPUSession `json:"items"`
}

// RemoteOperation is what a client may ask of a session. The calls of CUDA are none: they are
// refused with a reason.
//
// +kubebuilder:validation:Enum=MODEL_FORWARD;TENSOR_CREATE;TENSOR_OP
type RemoteOperation string

// Operations of a session.
const (
	// ModelForward sends tensors through a model that the server has.
	ModelForward RemoteOperation = "MODEL_FORWARD"
	// TensorCreate keeps a tensor at the server.
	TensorCreate RemoteOperation = "TENSOR_CREATE"
	// TensorOp computes one tensor from others.
	TensorOp RemoteOperation = "TENSOR_OP"
)

// RemoteGPUSessionSpec is what is leased, and for how long.
type RemoteGPUSessionSpec struct {
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
	// gpus is how many devices the session has.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="gpus: cannot be changed"
	GPUs int32 `json:"gpus,omitempty"`
	// ttlSeconds ends the session so long after it was first ready. A larger one lengthens it.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TTLSeconds int32 `json:"ttlSeconds"`
	// operations that the client may ask for.
	// +optional
	// +listType=set
	// +kubebuilder:default={"MODEL_FORWARD"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="operations: cannot be changed"
	Operations []RemoteOperation `json:"operations,omitempty"`
	// server is the inference server that does the work.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="server: cannot be changed"
	Server RemoteServer `json:"server"`
}

// RemoteServer is an inference server that speaks the Open Inference Protocol, version 2.
type RemoteServer struct {
	// image of the server, with the models or with what loads them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image"`
	// args of its program.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Args []string `json:"args,omitempty"`
	// port that it serves HTTP on.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// SessionPhase is the state of a session in one word.
//
// +kubebuilder:validation:Enum=Pending;Ready;Expired;Failed
type SessionPhase string

// Phases of a session.
const (
	// SessionPending: it waits for quota, or for its server.
	SessionPending SessionPhase = "Pending"
	// SessionReady: the endpoint answers.
	SessionReady SessionPhase = "Ready"
	// SessionExpired: its time is over, and its devices are given back.
	SessionExpired SessionPhase = "Expired"
	// SessionFailed: its server will not be tried again.
	SessionFailed SessionPhase = "Failed"
)

// RemoteGPUSessionStatus is where the session is reached. ConditionReady says why it is not.
type RemoteGPUSessionStatus struct {
	// observedGeneration is the generation of spec that the rest of status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the state in one word.
	// +optional
	Phase SessionPhase `json:"phase,omitempty"`
	// tenant is whose quota counts.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// endpoint is its URL.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`
	// tokenSecret is the Secret, in the session's namespace, with the token for the endpoint.
	// +optional
	TokenSecret *v1.LocalObjectReference `json:"tokenSecret,omitempty"`
	// expiresAt is when the session ends.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// conditions of the session.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
