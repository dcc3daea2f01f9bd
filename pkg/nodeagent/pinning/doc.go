// SPDX-License-Identifier: Apache-2.0

// Package pinning is the agent's plugin at the container runtime (NRI). While a
// container is made it confines it to the CPUs and the memory of the NUMA nodes
// of the GPUs that kubelet gave it, and it reports containers whose environment,
// mounts or CDI devices ask for GPUs that kubelet did not give them.
//
// Its one invariant: a container is confined by what kubelet recorded, whole, or
// left alone. Whatever goes wrong — no record, an unknown NUMA node, no time —
// ends in "left alone" and a line in the log, never in a container that is not
// made. What kubelet's own managers or another plugin have set is not touched.
//
// It moves no container that runs, chooses no GPUs and removes none: what a
// container gets is decided by kubelet and the device plugin.
// docs/decisions/0008 says what a cpuset means here.
package pinning
