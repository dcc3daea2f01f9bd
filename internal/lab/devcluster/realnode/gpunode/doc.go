// SPDX-License-Identifier: Apache-2.0

// Package gpunode sets up a whole GPU node without a GPU: a control plane, the project's scheduler, a
// real node, an inner device plugin with simulated GPUs and, if configured, the node agent; then it
// reports, pod by pod, the scheduler's choice, kubelet's record and the GPUs that the container sees.
// Optionally, plugin and exporter are NVIDIA's and the project's real ones on a fake driver, or on a
// machine's own driver with its GPUs.
//
// The values are read from four sources (annotation, kubelet's checkpoint, the PodResources API, the
// container's own environment), never one from another.
//
// Invariant: Lab.Stop ends everything that Start and the Lab's methods started.
//
// It checks nothing: the tests and the demo do.
package gpunode
