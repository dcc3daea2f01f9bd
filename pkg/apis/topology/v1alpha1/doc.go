// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds two resources. NodeGPUTopology: one object per node with
// the link graph of its GPUs, and what the node says about itself. ClusterTopology: one
// object with the fabric between the nodes, which pkg/placement/clustertopology reads.
//
// A NodeGPUTopology's spec belongs to the exporter, status.kubelet and status.allocations to the
// node agent, each under a field manager of its own. Conversion to the library's
// graph is strict: an object that does not describe a whole graph is an error
// that names the field, never half a graph.
//
// +kubebuilder:object:generate=true
// +groupName=topology.nvtopo.dev
package v1alpha1
