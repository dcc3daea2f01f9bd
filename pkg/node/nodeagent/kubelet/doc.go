// SPDX-License-Identifier: Apache-2.0

// Package kubelet reads which devices kubelet gave to which container: from the
// device manager's checkpoint file and from the PodResources service.
//
// Its one invariant: an answer is either all that kubelet said, or an error that
// says what went wrong. "Kubelet does not know this pod", "kubelet is too busy"
// and "kubelet cannot answer such questions" are three different errors, because
// callers react differently to each.
//
// It never writes, and it does not know why a caller asks. It calls PodResources
// List only in ActivePods, whose comment says when that is safe: List can make
// kubelet forget devices that it is just giving out.
package kubelet
