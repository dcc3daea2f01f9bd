// SPDX-License-Identifier: Apache-2.0

package kubelet

import "errors"

// Why PodResources gave no answer; every other error is passed on as it came.
var (
	// ErrUnknownPod: kubelet was not handed the pod yet, or rejected it, or the
	// pod ended. It holds no devices.
	ErrUnknownPod = errors.New("kubelet does not know the pod as an active one")
	// ErrBusy: the rate limit that all clients of the node share is used up. It
	// says nothing about the pod.
	ErrBusy = errors.New("kubelet's PodResources rate limit is used up")
	// ErrUnsupported: this kubelet has no Get, or it is switched off.
	ErrUnsupported = errors.New("kubelet does not serve PodResources Get")
)
