// SPDX-License-Identifier: Apache-2.0

// Package nodeindex is the choice across nodes: which of many machines gives a
// demand the best set of GPUs now, and what that costs the others who come later.
//
// Its one invariant: two machines of one bucket, that is of one graph class, one
// kind and one free set, get the same offer, so the work of a choice grows with
// the number of distinct buckets, and of leaves of the fabric (Places) among which
// equal machines are, and not with the number of machines.
//
// It knows nothing of Kubernetes and keeps no truth: who uses which GPU is told
// it by Put. The scheduler's index and the simulator are both made of it.
package nodeindex
