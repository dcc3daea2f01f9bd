// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UsageBatch has sessions that have ended in place of their UsageRecords, which are deleted once the
// batch is there: those of one tenant, in one namespace, on one invoice. It is written once. A session
// that also has a record counts once, as the batch has it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=usagebatches,singular=usagebatch,shortName=ub
// +kubebuilder:selectablefield:JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Invoice",type=string,JSONPath=`.spec.invoice`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type UsageBatch struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec: cannot be changed"
	Spec UsageBatchSpec `json:"spec"`
}

// UsageBatchList is a list of UsageBatch.
//
// +kubebuilder:object:root=true
type UsageBatchList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UsageBatch `json:"items"`
}

// UsageBatchSpec is the sessions, and what they all have in common.
type UsageBatchSpec struct {
	// tenant that pays.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	Tenant string `json:"tenant"`
	// namespace of the pods.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// invoice is the name of the one that the sessions are on.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Invoice string `json:"invoice"`
	// groups of sessions.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	Groups []UsageGroup `json:"groups"`
}

// UsageGroup is sessions that differ only in their pods, times and costs.
type UsageGroup struct {
	UsageTerms `json:",inline"`

	// sessions of the group, by their ends.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	Sessions []EndedSession `json:"sessions"`
}

// UsageTerms is what the sessions of a group have in common: fields of UsageRecords.
type UsageTerms struct {
	// pool that the devices are of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool"`
	// queue that let the pods in, where it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Queue string `json:"queue,omitempty"`
	// owner of the pods, where they have one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Owner string `json:"owner,omitempty"`
	// resource that they held.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	Resource string `json:"resource"`
	// model of the devices, where it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$`
	Model string `json:"model,omitempty"`
	// quantity is how many devices each pod held.
	Quantity Decimal `json:"quantity"`
	// unitPrice of a device hour. Absent where there was no price.
	// +optional
	UnitPrice Decimal `json:"unitPrice,omitempty"`
}

// EndedSession is one pod's hold of devices.
type EndedSession struct {
	// pod is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`
	// podUID is its UID.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID types.UID `json:"podUID"`
	// record is what the name of the UsageRecord had behind the UID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Record string `json:"record,omitempty"`
	// node that it was bound to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// start is when it was bound, or when its devices became its tenant's.
	Start metav1.Time `json:"start"`
	// end is when it held them no more.
	End metav1.Time `json:"end"`
	// estimated says that the end was not seen: it is the last time the pod was.
	// +optional
	Estimated bool `json:"estimated,omitempty"`
	// seconds for which it is billed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Seconds int64 `json:"seconds,omitempty"`
	// cost of it.
	// +optional
	Cost Money `json:"cost,omitempty"`
}
