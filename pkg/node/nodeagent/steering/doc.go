// SPDX-License-Identifier: Apache-2.0

// Package steering chooses the devices that kubelet allocates to each container.
//
// Kubelet requests devices without naming the pod. It admits one pod at a time and knows a
// pod from just before its admission. So the requesting pod is one that kubelet knows, that
// is active, and that has a container which should hold devices of the resource and holds
// none.
//
// The three packages below it are pure. This one makes their requests:
//
//	question     kubelet's request, and sets of device ids
//	podfinder    finds the requesting pod, from the agent's view of the pods, the served
//	             devices, kubelet's record and kubelet's reports
//	answer       chooses the pod's devices: the answer to kubelet
//	steering     the memory of served devices (shelf.go, store.go), the calls of kubelet
//	             (preferred.go, allocate.go, prestart.go) and to it (identify.go,
//	             survey.go)
//
// Invariant: an answer has exactly the requested size, contains all devices that kubelet had
// already taken, and no device that is not on offer. No id is passed on to the plugin for
// one pod while kubelet reports that another pod holds it, or for one container while
// another container of the same pod has it on record and keeps it. Ids are never changed on
// the way to the plugin.
//
// The package writes nothing to the API server and repairs no annotation: see verify.
package steering
