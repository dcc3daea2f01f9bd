// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TenantAccount is what a tenant has paid. It has the tenant's name. It can only be deleted while it
// has no credits, price book or bill, or with the annotation pool.nvtopo.dev/allow-deletion: "true".
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=tenantaccounts,singular=tenantaccount,shortName=ta
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Balance",type=string,JSONPath=`.status.balance`
// +kubebuilder:printcolumn:name="Billed",type=string,JSONPath=`.status.billed`
// +kubebuilder:printcolumn:name="Accrued",type=string,JSONPath=`.status.accrued`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: the name of a tenant, at most 63 of a-z, 0-9 and -"
type TenantAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantAccountSpec   `json:"spec"`
	Status TenantAccountStatus `json:"status,omitempty"`
}

// TenantAccountList is a list of TenantAccount.
//
// +kubebuilder:object:root=true
type TenantAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantAccount `json:"items"`
}

// TenantAccountSpec is the tenant's credits.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.credits) || has(self.credits)",fieldPath=".credits",message="credits: can only be added to"
type TenantAccountSpec struct {
	// credits can only be added to, at the end. A mistake is corrected by one more, which may
	// be negative. The pool controller puts those whose invoices are final together in one, the first,
	// whose id is pool.nvtopo.dev/opening; what is added later has a later time than that.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:XValidation:rule="size(self) >= size(oldSelf) ? oldSelf.all(i, c, self[i] == c) : size(self) > 0 && self[0].id == 'pool.nvtopo.dev/opening' && self.all(i, c, i == 0 || c == oldSelf[i + size(oldSelf) - size(self)]) && oldSelf.all(i, c, i > size(oldSelf) - size(self) || c.at <= self[0].at) && [self.map(c, double(c.amount)).sum() - oldSelf.map(c, double(c.amount)).sum()].all(d, d < 0.005 && d > -0.005)",message="credits: can only be added to"
	// +kubebuilder:validation:XValidation:rule="size(self) <= size(oldSelf) || self.all(i, c, i < size(oldSelf) || c.id != 'pool.nvtopo.dev/opening')",message="credits: the pool controller writes pool.nvtopo.dev/opening"
	// +kubebuilder:validation:XValidation:rule="size(self) <= size(oldSelf) || size(oldSelf) == 0 || oldSelf[0].id != 'pool.nvtopo.dev/opening' || self.all(i, c, i < size(oldSelf) || c.at > oldSelf[0].at)",message="credits: at is not after that of the opening credit, which has all that was given until then: give a new payment a later time"
	Credits []Credit `json:"credits,omitempty"`
}

// OpeningCredit is the id of the credit that all earlier ones were put together in.
const OpeningCredit = GroupName + "/opening"

// MaxCredits is how many credits an account takes.
const MaxCredits = 1024

// Credit is money that a tenant has paid or was given.
type Credit struct {
	// id of the payment. A request that is repeated adds nothing.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	ID string `json:"id"`
	// amount as a string such as "1000.00".
	// +kubebuilder:validation:XValidation:rule="double(self) != 0.0",message="amount: is 0"
	Amount Money `json:"amount"`
	// at is when it was given.
	At metav1.Time `json:"at"`
	// note for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Note string `json:"note,omitempty"`
}

// AnnotationPriceBook on a TenantAccount is the name of the tenant's price book.
const AnnotationPriceBook = GroupName + "/price-book"

// AnnotationAllowDeletion on a TenantAccount or a final Invoice, if it is "true", lets it be deleted
// with what it has: an admission policy refuses that otherwise.
const AnnotationAllowDeletion = GroupName + "/allow-deletion"

// ConditionPriced of a TenantAccount says whether all of its sessions could be priced.
const ConditionPriced = "Priced"

// ConditionRecordsHeld of a TenantAccount is true while records are not billed that were restored from a
// backup without their status. It is absent where there never were such records.
const ConditionRecordsHeld = "RecordsHeld"

// ConditionUsageStorageFull of a TenantAccount is true while the UsageRecords and UsageBatches of all
// tenants take as much of etcd as they may. It is absent where they never did.
const ConditionUsageStorageFull = "UsageStorageFull"

// ConditionExported of a TenantAccount is false while a final invoice could not be exported. It is absent
// where that never happened.
const ConditionExported = "Exported"

// ConditionOverdrawn of a TenantAccount is true while its balance is below 0.
const ConditionOverdrawn = "Overdrawn"

// TenantAccountStatus is computed from credits and records each time, never added to.
type TenantAccountStatus struct {
	// balance is the sum of credits less billed.
	// +optional
	Balance Money `json:"balance,omitempty"`
	// billed is what all sessions that have ended cost.
	// +optional
	Billed Money `json:"billed,omitempty"`
	// accrued is what those would cost that go on, if they ended now.
	// +optional
	Accrued Money `json:"accrued,omitempty"`
	// asOf is when this was so.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// conditions of the account.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
