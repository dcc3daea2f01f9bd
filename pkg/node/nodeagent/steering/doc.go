// SPDX-License-Identifier: Apache-2.0

// Package steering decides which devices kubelet is told to take.
//
// Kubelet asks for devices without naming the pod. It admits one pod at a time and
// knows a pod from just before its admission. So the asking pod is one that kubelet
// knows, that is active, and that has a container which should hold devices of the
// resource and holds none.
//
// Three packages below it are pure. This one does what they want:
//
//	question     what kubelet asks, and sets of device ids
//	podfinder    finds the pod that asks, from the agent's view of the pods, what was
//	             served, kubelet's record and kubelet's answers
//	answer       which devices the pod gets: the answer to kubelet
//	steering     the memory of what was served (shelf.go, store.go), the calls of kubelet
//	             (preferred.go, allocate.go, prestart.go) and to it (identify.go,
//	             survey.go)
//
// The one invariant: an answer has exactly the size kubelet asked for, contains all
// devices that kubelet had already taken, and nothing that is not on offer. No id
// is passed on to the plugin for one pod while kubelet shows that another pod holds
// it, or for one container while another container of the same pod has it on record
// and keeps it. Ids are never changed on the way to the plugin.
//
// The package writes nothing to the API server and repairs no annotation: see verify.
package steering
