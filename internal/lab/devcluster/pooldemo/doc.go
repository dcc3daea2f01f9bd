// SPDX-License-Identifier: Apache-2.0

// Package pooldemo shows three tenants that share a pool of 64 GPUs: one that has it alone, all
// three with more work than there is room for, a job that grows into what is idle and shrinks
// when another takes back its guarantee, and the invoices. A picture in text says who holds what.
//
// Its one invariant: what a scene promises is read from the bound pods and from the objects that
// are kept, and no tenant was beyond its limit at any change of a pod.
package pooldemo
