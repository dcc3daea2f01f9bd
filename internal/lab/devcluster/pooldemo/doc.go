// SPDX-License-Identifier: Apache-2.0

// Package pooldemo shows three tenants that share a pool of 64 GPUs: one that has it alone, all three
// with more work than the pool has room for, a job that grows into idle GPUs and shrinks when another
// tenant takes back its guarantee, and the invoices. A picture in text shows the owners of GPUs.
//
// Invariant: the promises of a scene are checked on the bound pods and the kept objects, and no tenant
// was beyond its limit at any change of a pod.
package pooldemo
