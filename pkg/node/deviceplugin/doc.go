// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin is the plugin's side of kubelet's device plugin API (v1beta1).
// Endpoint keeps one resource registered with a kubelet. Plugin is a small device
// plugin on top of it, for simulated GPUs and for vendors whose own plugin has no
// preferred allocation.
//
// Its one invariant: as long as Run runs and a kubelet listens, that kubelet has
// exactly one current ListAndWatch stream of the resource, with the last published
// list. Whatever breaks this (kubelet restarted, sockets removed, stream closed) is
// noticed and repaired.
//
// It chooses no devices unless told how, and it never changes the ids that kubelet
// allocates. The proxy between kubelet and another plugin is pkg/node/nodeagent/interposer.
package deviceplugin
