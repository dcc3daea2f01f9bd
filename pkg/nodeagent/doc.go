// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the program that runs on every GPU node and makes its
// containers really get the GPUs that the scheduler chose. It puts its parts
// together and owns what they share: the node's pods, its link graph, and the
// order in which things start and end.
//
//	interposer   the device plugin that kubelet sees; the real one is behind it
//	steering     which pod asks, and which devices it gets
//	kubelet      what kubelet has recorded
//	kubeletconf  how kubelet is configured
//	verify       what was recorded beside what was chosen; status, Lease, events
//	pinning      CPUs and memory beside the GPUs, through NRI
//
// The invariant of all of them: no device is ever given to two live pods, and
// what kubelet records is what the container gets. The package takes no lock that
// outlives one request and writes to no pod.
package nodeagent
