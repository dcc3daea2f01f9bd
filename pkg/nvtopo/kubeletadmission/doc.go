// SPDX-License-Identifier: Apache-2.0

// Package kubeletadmission predicts how a node's kubelet handles a pod: whether its topology manager,
// device manager, CPU manager and memory manager admit it, and from which devices each container may be
// served. It follows the kubelets of Kubernetes 1.34 to 1.37; the rules are described where they are
// applied.
//
// Its one invariant: given the same free devices, CPUs and memory, it refuses a pod exactly when kubelet
// does, and every device set it calls honoured is one that kubelet takes when its device plugin prefers
// it.
//
// It does not choose: the caller decides which of the honoured sets is best. It uses no API objects and
// keeps no state between calls. A verdict allocates only where a best-effort kubelet has no preferred
// hint, and on machines of more than 8 NUMA nodes.
//
// Not predicted: huge pages, devices of plugins that the machine does not list, and which CPUs of a NUMA
// node are taken for the sake of shared caches.
package kubeletadmission
