// SPDX-License-Identifier: Apache-2.0

// Package kubeletconf determines how the kubelet of this node aligns resources: its topology, CPU and
// memory manager policies, and the current assignments of these managers.
//
// Kubelet's configuration comes from its /configz, or from its configuration file if the operator names
// one. The assignments come from the managers' state files, which are read and never written. Invariant:
// nothing is guessed. A value that no source provides is left out, and Problem names it. A kubelet that
// was never read is nil, not the defaults.
//
// The package requests /configz from kubelet itself, not through the API server's node proxy. Since
// Kubernetes 1.33 kubelet authorizes the request as nodes/configz. The proxy needs get on nodes/proxy,
// which also allows running commands in every container of the node.
//
// The package only reports. pkg/placement predicts admission from the published values, and
// pkg/node/nodeagent/pinning leaves containers alone that kubelet pins.
package kubeletconf
