// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds what a cluster's GPUs are shared by. ComputePool: GPUs that tenants
// share by contract, with guaranteed shares, limits and queues. ElasticJob: a job that grows
// into what is idle and gives it back. PriceBook, UsageRecord, UsageBatch, TenantAccount and Invoice:
// what devices cost, who held them when, what was paid and what is owed. RemoteGPUSession: devices
// leased to a client elsewhere.
//
// A spec belongs to people, a status to the pool controller. What one object can get wrong by
// itself, the API server refuses, and the message names the field; what depends on other
// objects, a condition says.
//
// It holds types only: it renders nothing and counts nothing.
//
// +kubebuilder:object:generate=true
// +groupName=pool.nvtopo.dev
package v1alpha1
