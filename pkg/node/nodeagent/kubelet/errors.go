// SPDX-License-Identifier: Apache-2.0

package kubelet

import "errors"

// The reasons why PodResources gave no answer. All other errors are passed on
// unchanged.
var (
	// ErrUnknownPod: kubelet has not got the pod yet, or rejected it, or the pod ended.
	// The pod holds no devices.
	ErrUnknownPod = errors.New("kubelet does not know the pod as an active one")
	// ErrBusy: the rate limit, which all clients of the node share, is used up. It says
	// nothing about the pod.
	ErrBusy = errors.New("kubelet's PodResources rate limit is used up")
	// ErrUnsupported: this kubelet has no Get, or Get is switched off.
	ErrUnsupported = errors.New("kubelet does not serve PodResources Get")
)
