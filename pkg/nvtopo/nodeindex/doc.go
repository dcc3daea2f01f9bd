// SPDX-License-Identifier: Apache-2.0

// Package nodeindex chooses across nodes: which of many machines gives a demand the best set of GPUs now,
// and what that costs later demands.
//
// Its one invariant: two machines of one bucket, that is of one graph class, one kind and one free set,
// get the same offer, so the work of a choice grows with the number of distinct buckets, and of leaves of
// the fabric (Places) that have equal machines, and not with the number of machines.
//
// It does not depend on Kubernetes and is no source of truth: the use of GPUs is set by Put. The
// scheduler's index and the simulator are both built on it.
package nodeindex
