// SPDX-License-Identifier: Apache-2.0

// Package pinning implements the agent's NRI plugin, a plugin of the container runtime. When a container
// is created, it confines the container to the CPUs and the memory of the NUMA nodes of its GPUs. It also
// reports containers whose environment, mounts or CDI devices request GPUs that kubelet did not give
// them, or whose environment binds threads to CPUs that they may not use.
//
// Invariant: a container is confined according to kubelet's complete record of it, or left alone. After
// any failure (no record, an unknown NUMA node, no time), the container is left alone and a line is
// logged; its creation never fails. Settings of kubelet's own managers or of another plugin are not
// touched.
//
// It does not move running containers, and it neither chooses nor removes GPUs: kubelet and the device
// plugin decide which GPUs a container gets. docs/decisions/0008 defines the meaning of a cpuset here.
package pinning
