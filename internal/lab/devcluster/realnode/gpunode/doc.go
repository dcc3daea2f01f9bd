// SPDX-License-Identifier: Apache-2.0

// Package gpunode puts a whole GPU node together without a GPU: a control plane,
// our scheduler, a real node, an inner device plugin with simulated GPUs and,
// when asked, the node agent; then it says, pod by pod, what the scheduler
// chose, what kubelet recorded and what the container sees. When asked, plugin and
// exporter are the real ones, NVIDIA's and ours, and only the driver is not; or it is
// a machine's own driver with its GPUs.
//
// The four are read from four places (annotation, kubelet's checkpoint, the
// PodResources API, the container's own environment), never one from another.
//
// Invariant: Lab.Stop ends everything that Start and the Lab's methods started.
//
// It judges nothing: the tests and the demo do.
package gpunode
