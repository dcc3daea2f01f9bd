// SPDX-License-Identifier: Apache-2.0

// Package admission predicts what a node's kubelet will do with a pod: whether
// its topology manager, device manager, CPU manager and memory manager admit it,
// and from which devices each container may be served. It follows Kubernetes
// 1.35; the rules are described where they are applied.
//
// Its one invariant: given the same free devices, CPUs and memory, it refuses a
// pod exactly when kubelet does, and every device set it calls honoured is one
// that kubelet takes when its device plugin prefers it.
//
// It decides nothing itself: which of the honoured sets is best is for the
// caller. It knows no API objects, keeps no state between calls and does not
// allocate on machines of up to 8 NUMA nodes.
package admission
