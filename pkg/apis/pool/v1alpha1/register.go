// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of pools.
const GroupName = "pool.nvtopo.dev"

// Names of the resources.
const (
	ComputePoolKind     = "ComputePool"
	ComputePoolResource = "computepools"

	ElasticJobKind     = "ElasticJob"
	ElasticJobResource = "elasticjobs"

	PriceBookKind     = "PriceBook"
	PriceBookResource = "pricebooks"

	UsageRecordKind     = "UsageRecord"
	UsageRecordResource = "usagerecords"

	UsageBatchKind     = "UsageBatch"
	UsageBatchResource = "usagebatches"

	TenantAccountKind     = "TenantAccount"
	TenantAccountResource = "tenantaccounts"

	InvoiceKind     = "Invoice"
	InvoiceResource = "invoices"

	RemoteGPUSessionKind     = "RemoteGPUSession"
	RemoteGPUSessionResource = "remotegpusessions"
)

// Labels.
const (
	// LabelTenant is on the namespaces whose jobs and pods are Kueue's business; its value
	// is the tenant's name.
	LabelTenant = GroupName + "/tenant"
	// LabelPool is on the nodes of a pool that has no nodeSelector; its value is the pool's
	// name.
	LabelPool = GroupName + "/pool"
	// AnnotationDraining on a Node says since when it takes no pods with devices, because these are being
	// divided. Its value is also the token that the scheduler acknowledges. It stays until the node is done.
	AnnotationDraining = GroupName + "/draining-since"
)

var (
	// SchemeGroupVersion is the group and version of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
	// ComputePoolGVR names the collection of ComputePools for dynamic clients.
	ComputePoolGVR = SchemeGroupVersion.WithResource(ComputePoolResource)
	// ElasticJobGVR names that of ElasticJobs.
	ElasticJobGVR = SchemeGroupVersion.WithResource(ElasticJobResource)
	// PriceBookGVR names that of PriceBooks.
	PriceBookGVR = SchemeGroupVersion.WithResource(PriceBookResource)
	// UsageRecordGVR names that of UsageRecords.
	UsageRecordGVR = SchemeGroupVersion.WithResource(UsageRecordResource)
	// UsageBatchGVR names that of UsageBatches.
	UsageBatchGVR = SchemeGroupVersion.WithResource(UsageBatchResource)
	// TenantAccountGVR names that of TenantAccounts.
	TenantAccountGVR = SchemeGroupVersion.WithResource(TenantAccountResource)
	// InvoiceGVR names that of Invoices.
	InvoiceGVR = SchemeGroupVersion.WithResource(InvoiceResource)
	// RemoteGPUSessionGVR names that of RemoteGPUSessions.
	RemoteGPUSessionGVR = SchemeGroupVersion.WithResource(RemoteGPUSessionResource)
	// SchemeBuilder collects the registration functions of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&ComputePool{}, &ComputePoolList{}, &ElasticJob{}, &ElasticJobList{},
		&PriceBook{}, &PriceBookList{}, &UsageRecord{}, &UsageRecordList{}, &UsageBatch{}, &UsageBatchList{},
		&TenantAccount{}, &TenantAccountList{}, &Invoice{}, &InvoiceList{}, &RemoteGPUSession{}, &RemoteGPUSessionList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
