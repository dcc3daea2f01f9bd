// SPDX-License-Identifier: Apache-2.0

// Package nvtopo is the pure library under everything else: the link graph of one node's accelerators,
// the published objective, exact tables of its answers, and a cost model for collectives.
//
// It imports the standard library only. Its one invariant: for equal inputs every function returns equal
// outputs, on every machine and in every run; all bandwidth arithmetic is in integers (kB/s,
// nanoseconds), so ties are exact.
//
// It does not discover hardware (see the sub-packages nvml, smi and machine), and it does not depend on
// Kubernetes.
//
// Where to look: the order among sets of GPUs is in classtables.go, the value of the remaining free GPUs
// in residual.go, the answer tables up to 16 GPUs in answers.go and the search above in large.go; pick.go
// uses them. Links are in link.go, rings in ring.go.
package nvtopo
