// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Invoice is what a tenant owes for a period, or a page of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=invoices,singular=invoice,shortName=inv
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenant`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.period.start`
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.spec.period.end`
// +kubebuilder:printcolumn:name="Total",type=string,JSONPath=`.spec.total`
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.spec.currency`
// +kubebuilder:printcolumn:name="Final",type=boolean,JSONPath=`.spec.finalized`
type Invoice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.finalized) || !oldSelf.finalized || self == oldSelf",message="spec: cannot be changed once the invoice is finalized"
	Spec   InvoiceSpec   `json:"spec"`
	Status InvoiceStatus `json:"status,omitempty"`
}

// InvoiceList is a list of Invoice.
//
// +kubebuilder:object:root=true
type InvoiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Invoice `json:"items"`
}

// InvoiceSpec is the invoice itself, or a page of it.
type InvoiceSpec struct {
	// invoiceID is its number, which no other has.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="invoiceID: cannot be changed"
	InvoiceID string `json:"invoiceID"`
	// tenant who owes it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="tenant: cannot be changed"
	Tenant string `json:"tenant"`
	// period that it is for: sessions that ended in it.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="period: cannot be changed"
	Period BillingPeriod `json:"period"`
	// page is the number of this page, from 1 on, where the period has more lines than one Invoice takes.
	// The others have the name of the first with -page-2 and so on, and the same period. Absent where one
	// is enough.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Page int32 `json:"page,omitempty"`
	// pages is how many there are; on the first page, which is final last.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1000
	Pages int32 `json:"pages,omitempty"`
	// currency of all amounts.
	Currency Currency `json:"currency"`
	// lineItems, one for each resource, model and price.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	LineItems []LineItem `json:"lineItems,omitempty"`
	// total is the sum of the lines' subtotals. What the tenant owes for the period is the sum of all pages.
	Total Money `json:"total"`
	// generatedAt is when it was computed.
	GeneratedAt metav1.Time `json:"generatedAt"`
	// finalized says that it is closed; until then it may be computed again.
	// +optional
	Finalized bool `json:"finalized,omitempty"`
}

// BillingPeriod is from start until just before end.
//
// +kubebuilder:validation:XValidation:rule="self.start < self.end",fieldPath=".end",message="period.end: must be after period.start"
type BillingPeriod struct {
	// start of the period.
	Start metav1.Time `json:"start"`
	// end is no part of it.
	End metav1.Time `json:"end"`
}

// LineItem is the sessions of an invoice that had one resource, model and price.
type LineItem struct {
	// resource that was held.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Resource string `json:"resource"`
	// model of the devices, where it is known.
	// +optional
	// +kubebuilder:validation:MaxLength=96
	Model string `json:"model,omitempty"`
	// hours are device hours, rounded. The subtotal is not computed from them.
	Hours Decimal `json:"hours"`
	// unitPrice of a device hour.
	UnitPrice Decimal `json:"unitPrice"`
	// discount is what was taken off.
	Discount Money `json:"discount"`
	// subtotal is the sum of the sessions' rounded costs.
	Subtotal Money `json:"subtotal"`
	// sessions is how many there were.
	// +kubebuilder:validation:Minimum=0
	Sessions int32 `json:"sessions"`
	// estimated is how many of them have an end that nobody saw.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Estimated int32 `json:"estimated,omitempty"`
	// noPrice says that the price book had none for it when the sessions ended, so that they cost
	// nothing.
	// +optional
	NoPrice bool `json:"noPrice,omitempty"`
}

// InvoiceStatus is what became of the invoice.
type InvoiceStatus struct {
	// exportedAt is when it was exported. Its records are kept for a while from then on.
	// +optional
	ExportedAt *metav1.Time `json:"exportedAt,omitempty"`
}
