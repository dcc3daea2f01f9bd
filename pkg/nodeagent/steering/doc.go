// SPDX-License-Identifier: Apache-2.0

// Package steering decides which devices kubelet is told to take.
//
// Kubelet asks for devices without saying for whom. It admits pods one at a time
// and knows a pod from just before its admission on, so the pod that asks is the
// one that kubelet knows, that is active, and that has a container which should
// hold devices of the resource and does not. resolve finds it from what the agent
// sees of the pods, what was served, what kubelet recorded and what kubelet
// answers; it is pure and says what to ask next, and a driver asks.
//
// The one invariant: an answer has exactly the size kubelet asked for, contains
// what kubelet had already taken and nothing that is not on offer; and no id is
// let through to the plugin for one pod while kubelet shows it held by another, or
// for one container while another of its pod has it on record and keeps it.
// Ids are never changed on the way to the plugin.
//
// It writes nothing to the API server and repairs no annotation: see verify.
package steering
