// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin implements the plugin's side of kubelet's device plugin API (v1beta1). Endpoint
// keeps one resource registered with a kubelet. Plugin is a small device plugin on top of it, for
// simulated GPUs and for vendors whose own plugin has no preferred allocation.
//
// Invariant: while Run runs and a kubelet listens, that kubelet has exactly one current ListAndWatch
// stream of the resource, with the last published list. A restarted kubelet, a removed socket or a closed
// stream is detected and repaired.
//
// The package chooses no devices unless configured to, and never changes the ids that kubelet allocates.
// The proxy between kubelet and another plugin is pkg/node/nodeagent/interposer.
package deviceplugin
