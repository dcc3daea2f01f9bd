// SPDX-License-Identifier: Apache-2.0

// Package kubelet reads what kubelet knows of the devices it gave out: the
// device manager's checkpoint file and the PodResources service.
//
// Its one invariant: an answer is either what kubelet said, whole, or an error
// that tells how it failed. "Kubelet does not know this pod", "kubelet has no
// time now" and "kubelet cannot answer such questions" are three different
// errors, because three different things follow from them.
//
// It never writes, never calls PodResources List (which makes kubelet throw
// away device picks that are under way) and does not know why anybody asks.
package kubelet
