// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decimal is a number of nothing or more, written out: no float rounds it.
//
// +kubebuilder:validation:MaxLength=34
// +kubebuilder:validation:Pattern=`^[0-9]{1,24}(\.[0-9]{1,9})?$`
type Decimal string

// Money is an amount in whole hundredths of a currency, written out. It may be negative.
//
// +kubebuilder:validation:MaxLength=28
// +kubebuilder:validation:Pattern=`^-?[0-9]{1,24}(\.[0-9]{1,2})?$`
type Money string

// Currency is the three letters of a currency.
//
// +kubebuilder:validation:MaxLength=3
// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
type Currency string

// DefaultPriceBook is the name of the price book of all tenants whose account names no other.
const DefaultPriceBook = "default"

// PriceBook says what an hour of a device costs. What a session costs is fixed when it ends: a change
// is about sessions that end after it, and about those that had no price. A slice of a device that
// has no price has that of the whole device, of which its quantity is a part.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=pricebooks,singular=pricebook,shortName=pb
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.spec.currency`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.discountScope`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PriceBook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PriceBookSpec `json:"spec"`
}

// PriceBookList is a list of PriceBook.
//
// +kubebuilder:object:root=true
type PriceBookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PriceBook `json:"items"`
}

// DiscountMode says to which hours a discount applies.
//
// +kubebuilder:validation:Enum=AllUnits;Marginal
type DiscountMode string

// Modes of discounts.
const (
	// AllUnits: the highest threshold that is reached is about all hours.
	AllUnits DiscountMode = "AllUnits"
	// Marginal: each threshold is about the hours above it.
	Marginal DiscountMode = "Marginal"
)

// DiscountScope says which hours are counted together.
//
// +kubebuilder:validation:Enum=Session;BillingPeriod
type DiscountScope string

// Scopes of discounts.
const (
	ScopeSession       DiscountScope = "Session"
	ScopeBillingPeriod DiscountScope = "BillingPeriod"
)

// PriceBookSpec is the prices and what is taken off them.
type PriceBookSpec struct {
	// currency of all prices. It cannot be changed: what was billed is in it.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="currency: cannot be changed; make another price book"
	Currency Currency `json:"currency"`
	// prices by resource, model and validFrom. What has none costs nothing, and its invoice says so.
	// +listType=map
	// +listMapKey=resource
	// +listMapKey=model
	// +listMapKey=validFrom
	// +kubebuilder:validation:MaxItems=256
	Prices []Price `json:"prices"`
	// minPeriodSeconds is for how long a session is billed at least.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	MinPeriodSeconds *int64 `json:"minPeriodSeconds,omitempty"`
	// discounts for many hours of a session or a month.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.map(d, double(d.thresholdHours)).isSorted() && self.all(d, self.exists_one(e, double(e.thresholdHours) == double(d.thresholdHours)))",message="discounts: thresholdHours must ascend"
	Discounts []Discount `json:"discounts,omitempty"`
	// mode says to which hours a discount applies.
	// +optional
	// +kubebuilder:default=AllUnits
	Mode DiscountMode `json:"mode,omitempty"`
	// discountScope says which hours are counted together.
	// +optional
	// +kubebuilder:default=Session
	DiscountScope DiscountScope `json:"discountScope,omitempty"`
}

// Price is what one device of a resource costs an hour.
type Price struct {
	// resource is the extended resource, for example nvidia.com/gpu. CPU and memory have no price:
	// pools have quota of devices alone, and what a pod holds beside them goes into their price.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+$')",message="resource: an extended resource such as nvidia.com/gpu. Only devices are metered: put what CPU and memory cost into the price of the device"
	Resource string `json:"resource"`
	// model of the device. Without one, the price is that of all models that have none of
	// their own.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$')",message="model: as the label nvidia.com/gpu.product has it, with dashes for blanks, such as NVIDIA-H100-80GB-HBM3"
	Model string `json:"model"`
	// validFrom is the time, in UTC and as a string such as "2026-12-01T00:00:00Z", from which on the
	// price is that of sessions that end then or later. Before it, and without it, the price is the
	// one with the latest earlier validFrom, or with none.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$') && (self == '' || timestamp(self) > timestamp('1970-01-01T00:00:00Z'))",message="validFrom: a time in UTC with seconds, such as 2026-12-01T00:00:00Z"
	ValidFrom string `json:"validFrom"`
	// pricePerHour of one device, as a string such as "2.0".
	// +kubebuilder:validation:XValidation:rule="double(self) <= 1000000.0",message="pricePerHour: at most 1000000"
	PricePerHour Decimal `json:"pricePerHour"`
}

// Discount multiplies the price from so many hours on.
type Discount struct {
	// thresholdHours is from how many device hours on, as a string such as "100".
	// +kubebuilder:validation:XValidation:rule="double(self) > 0.0",message="thresholdHours: above 0"
	ThresholdHours Decimal `json:"thresholdHours"`
	// multiplier of the price, as a string such as "0.9".
	// +kubebuilder:validation:XValidation:rule="double(self) <= 1.0",message="multiplier: at most 1"
	Multiplier Decimal `json:"multiplier"`
}
