// SPDX-License-Identifier: Apache-2.0

// Package kubeletconf finds out how the kubelet of this node aligns resources:
// its topology, CPU and memory manager policies and what they have given out.
//
// What kubelet was started with comes from its /configz, or from its
// configuration file where the operator names one. What its managers hold comes
// from their state files, which are read and never written. The one invariant:
// nothing is guessed. A value that no source tells is left out and Problem says
// which; a kubelet that was never read is nil, not the defaults.
//
// /configz is asked of kubelet itself and not through the API server's node
// proxy: since Kubernetes 1.33 kubelet authorizes it as nodes/configz, while the
// proxy wants get on nodes/proxy, with which one may also run commands in every
// container of the node.
//
// The package decides nothing: pkg/nodestate predicts admission from what it
// publishes, pkg/nodeagent/pinning keeps off containers that kubelet pins.
package kubeletconf
