// SPDX-License-Identifier: Apache-2.0

// Package nodeverify checks whether a container has the GPUs that it was given, and whether it runs near
// them. It uses kubelet's record, the pod's annotation, the environment, and the kernel's data on CPUs,
// memory and threads of its processes.
//
// Invariant: a value that could not be read is unknown, with the reason, and is neither right nor wrong.
// The package reads under a file system that is passed to it, runs no program and changes nothing.
package nodeverify
