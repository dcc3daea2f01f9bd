// SPDX-License-Identifier: Apache-2.0

// Package nodestate is the scheduler's view of which accelerators exist, which
// are used and which may be chosen: in-flight table and who waits. What is known of a node's
// devices package topologies says, what is used of them pkg/usage, which GPUs a pod gets
// there pkg/placement, and which nodes a cycle looks at package candidates; this package
// hands them what they need, under one lock, and remembers the answers. One State serves
// every profile and both plugins of a process.
//
// Its one invariant: at every moment a GPU that a live pod holds, or has been
// promised, is visible in at least one of the in-flight table, the pod's own
// annotation, or the node agent's record; so no device is in two pods.
//
// The package does not know scheduler statuses (that is the plugins' part). A choice
// is written only when a plugin's PreBind or Bind asks for it. On its own the package
// asks the API server about writes without a clear answer, and writes annotations anew
// where such a write was carried out late (correction.go). It also wakes waiting pods:
// of those with GPUs whom a node would take that came to have more (waiting.go, waker.go),
// and after changes that no event announces all that are not shut out (wakeothers.go).
package nodestate
