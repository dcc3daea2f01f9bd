// SPDX-License-Identifier: Apache-2.0

// Package nodeverify says whether a container has the GPUs that it was given, and whether it
// runs beside them: from kubelet's record, the pod's annotation, the environment, and what the
// kernel says of CPUs, memory and threads of its processes.
//
// Its one invariant: what could not be read is unknown, with the reason, and is neither right nor
// wrong. It reads under a file system that is passed to it, runs no program and changes nothing.
package nodeverify
