// SPDX-License-Identifier: Apache-2.0

// Package kubeletconf finds out how the kubelet of this node aligns resources: its
// topology, CPU and memory manager policies, and what these managers have given out.
//
// Kubelet's configuration comes from its /configz, or from its configuration file
// if the operator names one. What the managers hold comes from their state files,
// which are read and never written. The one invariant: nothing is guessed. A value
// that no source gives is left out, and Problem names it. A kubelet that was never
// read is nil, not the defaults.
//
// The package asks kubelet itself for /configz, not the API server's node proxy.
// Since Kubernetes 1.33 kubelet authorizes the request as nodes/configz. The proxy
// needs get on nodes/proxy, which also allows running commands in every container
// of the node.
//
// The package decides nothing. pkg/placement predicts admission from what it
// publishes, and pkg/node/nodeagent/pinning leaves containers alone that kubelet pins.
package kubeletconf
