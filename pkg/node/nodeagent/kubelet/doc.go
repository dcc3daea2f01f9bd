// SPDX-License-Identifier: Apache-2.0

// Package kubelet reads which devices kubelet gave to which container, from the device manager's
// checkpoint file and from the PodResources service.
//
// Invariant: a result is either kubelet's complete answer or an error with the cause. "Kubelet does not
// know this pod", "kubelet is too busy" and "kubelet does not support the request" are three different
// errors, because callers handle each differently.
//
// The package never writes. It calls PodResources List only in ActivePods, whose comment states when that
// is safe: List can make kubelet forget devices that it is just allocating.
package kubelet
