// SPDX-License-Identifier: Apache-2.0

package kubelet

import "errors"

// Reasons for which PodResources gave no answer. All other errors are returned unchanged.
var (
	// ErrUnknownPod means that kubelet has not received the pod yet, or rejected it, or the pod ended. The
	// pod holds no devices.
	ErrUnknownPod = errors.New("kubelet does not know the pod as an active one")
	// ErrBusy means that the rate limit, which all clients of the node share, is used up. It tells nothing
	// about the pod.
	ErrBusy = errors.New("kubelet's PodResources rate limit is used up")
	// ErrUnsupported means that this kubelet has no Get, or Get is disabled.
	ErrUnsupported = errors.New("kubelet does not serve PodResources Get")
)
