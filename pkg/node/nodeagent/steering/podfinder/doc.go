// SPDX-License-Identifier: Apache-2.0

// Package podfinder finds the container for which kubelet requests devices. Kubelet calls its plugins
// without naming the pod. It is pure: Resolve returns the next query, and its caller makes it and calls
// Resolve again.
//
// It uses the pods of the node (view.go), the devices served before, kubelet's record and its reports
// (facts.go). Read resolve.go first, then candidates.go: the pods that may be requesting and their order,
// and holds.go: the devices that their containers hold.
//
// Invariant: a pod is never rejected because of a doubt about which pod is requesting.
package podfinder
