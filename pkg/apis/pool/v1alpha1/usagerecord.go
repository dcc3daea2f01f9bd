// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UsageRecord is one pod's hold of devices, from its binding to its end. It is named after the
// pod's UID. What is in spec never changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=usagerecords,singular=usagerecord,shortName=ur
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod`
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resource`
// +kubebuilder:printcolumn:name="Quantity",type=string,JSONPath=`.spec.quantity`
// +kubebuilder:printcolumn:name="Start",type=date,JSONPath=`.spec.start`
// +kubebuilder:printcolumn:name="End",type=date,JSONPath=`.status.end`
// +kubebuilder:printcolumn:name="Cost",type=string,JSONPath=`.status.cost`
// +kubebuilder:printcolumn:name="Invoice",type=string,JSONPath=`.status.invoice`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.podUID)",message="metadata.name: must begin with spec.podUID"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(self.status.end) || self.status.end >= self.spec.start",fieldPath=".status.end",message="status.end: is before spec.start"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.end) || has(self.status) && has(self.status.end) && self.status.end == oldSelf.status.end",fieldPath=".status.end",message="status.end: cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.invoice) || has(self.status) && has(self.status.invoice) && self.status.invoice == oldSelf.status.invoice",fieldPath=".status.invoice",message="status.invoice: cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.unitPrice) || has(self.status) && has(self.status.unitPrice) && self.status.unitPrice == oldSelf.status.unitPrice",fieldPath=".status.unitPrice",message="status.unitPrice: cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.billedSeconds) || has(self.status) && has(self.status.billedSeconds) && self.status.billedSeconds == oldSelf.status.billedSeconds",fieldPath=".status.billedSeconds",message="status.billedSeconds: cannot be changed"
type UsageRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec: cannot be changed"
	Spec   UsageRecordSpec   `json:"spec"`
	Status UsageRecordStatus `json:"status,omitempty"`
}

// UsageRecordList is a list of UsageRecord.
//
// +kubebuilder:object:root=true
type UsageRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UsageRecord `json:"items"`
}

// UsageRecordSpec is who holds what since when.
type UsageRecordSpec struct {
	// tenant that pays.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	Tenant string `json:"tenant"`
	// pool that the devices are of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool"`
	// pod is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`
	// podUID is its UID.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID types.UID `json:"podUID"`
	// namespace of the pod. Records from before this field have none: they are in it, or in the
	// controller's own if it is gone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`
	// queue is the LocalQueue that let the pod in, where it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$`
	Queue string `json:"queue,omitempty"`
	// owner of the pod, such as "ElasticJob/llm" or "Job/sweep", where it has one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$`
	Owner string `json:"owner,omitempty"`
	// node that it is bound to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// resource that it holds.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	Resource string `json:"resource"`
	// model of the devices, where it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$`
	Model string `json:"model,omitempty"`
	// quantity is how many devices; a slice is a part of one, such as "0.428".
	// +kubebuilder:validation:XValidation:rule="double(self) > 0.0 && double(self) <= 1000000.0",message="quantity: above 0 and at most 1000000"
	Quantity Decimal `json:"quantity"`
	// start is when the pod was bound, or when its devices became its tenant's.
	Start metav1.Time `json:"start"`
}

// UsageRecordStatus is how it ended. What is set stays.
type UsageRecordStatus struct {
	// end is when the pod held them no more; absent while it does.
	// +optional
	End *metav1.Time `json:"end,omitempty"`
	// estimated says that nobody saw the end, and that end is the last time the pod was seen.
	// +optional
	Estimated bool `json:"estimated,omitempty"`
	// unitPrice of a device hour that was valid when the session ended. A price book that changes
	// later is not about the session. Absent while there is no price.
	// +optional
	// +kubebuilder:validation:XValidation:rule="double(self) <= 1000000.0",message="unitPrice: at most 1000000"
	UnitPrice Decimal `json:"unitPrice,omitempty"`
	// billedSeconds is for how long the session is billed: as long as it lasted, or the
	// minPeriodSeconds of the price book when it ended.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BilledSeconds int64 `json:"billedSeconds,omitempty"`
	// cost of the session, once it has ended. It changes no more once there is a unitPrice, but for
	// discounts over a month, which are known at its end.
	// +optional
	// +kubebuilder:validation:XValidation:rule="double(self) >= 0.0",message="cost: at least 0"
	Cost Money `json:"cost,omitempty"`
	// invoice is the name of the one that the session is on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Invoice string `json:"invoice,omitempty"`
}
