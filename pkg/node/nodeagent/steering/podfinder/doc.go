// SPDX-License-Identifier: Apache-2.0

// Package podfinder finds the container that asks kubelet for devices. Kubelet asks its
// plugins without naming the pod. It is pure: Resolve returns what to find out next, and
// its caller does that and calls it again.
//
// It goes by the pods of the node (view.go), what was served before, kubelet's record and
// its answers (facts.go). Read resolve.go first, then candidates.go: which pods may ask,
// in which order, and holds.go: what their containers hold.
//
// The one invariant: a pod is never refused because of a doubt about who asks.
package podfinder
