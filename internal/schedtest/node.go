// SPDX-License-Identifier: Apache-2.0

package schedtest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// NodeWrapper is upstream's builder of a node with methods for tests of GPUs.
type NodeWrapper struct{ *st.NodeWrapper }

// Node starts a node whose UID is its name, with room for 110 pods, kubelet's default, and nothing else.
func Node(name string) *NodeWrapper {
	n := &NodeWrapper{st.MakeNode().Name(name).UID(name)}
	n.Status.Capacity, n.Status.Allocatable = v1.ResourceList{}, v1.ResourceList{}
	return n.Resource(v1.ResourcePods, "110")
}

// UID sets the UID.
func (n *NodeWrapper) UID(s string) *NodeWrapper {
	n.NodeWrapper.UID(s)
	return n
}

// Label sets a label.
func (n *NodeWrapper) Label(key, value string) *NodeWrapper {
	n.NodeWrapper.Label(key, value)
	return n
}

// GPUs sets the node's number of GPUs.
func (n *NodeWrapper) GPUs(count int) *NodeWrapper {
	return n.set(gpuResource, *resource.NewQuantity(int64(count), resource.DecimalSI))
}

// CPU sets the node's CPU.
func (n *NodeWrapper) CPU(quantity string) *NodeWrapper {
	return n.Resource(v1.ResourceCPU, quantity)
}

// Memory sets the node's memory.
func (n *NodeWrapper) Memory(quantity string) *NodeWrapper {
	return n.Resource(v1.ResourceMemory, quantity)
}

// Resource sets the node's capacity of a resource, all of it allocatable.
func (n *NodeWrapper) Resource(name v1.ResourceName, quantity string) *NodeWrapper {
	return n.set(name, resource.MustParse(quantity))
}

func (n *NodeWrapper) set(name v1.ResourceName, q resource.Quantity) *NodeWrapper {
	n.Status.Capacity[name], n.Status.Allocatable[name] = q, q
	return n
}
