// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the program that runs on every GPU node. It makes sure
// that containers get the GPUs that the scheduler chose. It connects its parts
// and owns what they share: the node's pods, its link graph, and the order in
// which the parts start and stop.
//
//	interposer   the device plugin that kubelet sees; the real one is behind it
//	steering     which pod asks, and which devices it gets
//	kubelet      what kubelet has recorded; in kubeletconf, how it is configured
//	verify       compares the record with the choice; status, Lease, events
//	pinning      CPUs and memory close to the GPUs, through NRI
//
// Their common invariant: no device is ever given to two live pods, and a
// container gets what kubelet records. The package holds no lock for longer than
// one request and writes to no pod.
package nodeagent
