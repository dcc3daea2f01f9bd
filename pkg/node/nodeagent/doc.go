// SPDX-License-Identifier: Apache-2.0

// Package nodeagent implements the agent that runs on every GPU node and makes sure that
// containers get the GPUs that the scheduler chose. It connects its parts and owns the state
// that they share: the node's pods, its link graph, and the order in which the parts start
// and stop.
//
//	interposer   the device plugin that kubelet sees, in front of the real one
//	steering     finds the requesting pod and selects its devices
//	kubelet      kubelet's device records; in kubeletconf, its configuration
//	verify       compares the records with the allocation; status, Lease, events
//	pinning      CPUs and memory close to the GPUs, through NRI
//
// Their common invariant: no device is ever given to two live pods, and a container gets the
// devices that kubelet records. The package holds no lock for longer than one request and
// writes to no pod.
package nodeagent
