// SPDX-License-Identifier: Apache-2.0

package testobj

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeWrapper builds a node. Its methods change the node and can be chained in any order.
type NodeWrapper struct{ node *v1.Node }

// Node starts a node whose UID is its name, with room for 110 pods, kubelet's default, and nothing else.
// Its labels and annotations are empty maps to which a test can write.
func Node(name string) *NodeWrapper {
	n := &NodeWrapper{&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}},
	}}
	return n.Resource(v1.ResourcePods, "110")
}

// Obj returns the node.
func (n *NodeWrapper) Obj() *v1.Node { return n.node }

// With applies functions of the test that change the node.
func (n *NodeWrapper) With(changes ...func(*v1.Node)) *NodeWrapper {
	for _, change := range changes {
		change(n.node)
	}
	return n
}

// UID sets the UID.
func (n *NodeWrapper) UID(s string) *NodeWrapper {
	n.node.UID = types.UID(s)
	return n
}

// Label sets a label.
func (n *NodeWrapper) Label(key, value string) *NodeWrapper {
	n.node.Labels[key] = value
	return n
}

// Labels adds labels to those the node has.
func (n *NodeWrapper) Labels(labels map[string]string) *NodeWrapper {
	maps.Copy(n.node.Labels, labels)
	return n
}

// Unschedulable cordons the node.
func (n *NodeWrapper) Unschedulable() *NodeWrapper {
	n.node.Spec.Unschedulable = true
	return n
}

// Ready adds the condition Ready, which the node lacks by default.
func (n *NodeWrapper) Ready(status v1.ConditionStatus) *NodeWrapper {
	return n.Condition(v1.NodeReady, status)
}

// Condition adds a condition.
func (n *NodeWrapper) Condition(of v1.NodeConditionType, status v1.ConditionStatus) *NodeWrapper {
	n.node.Status.Conditions = append(n.node.Status.Conditions, v1.NodeCondition{Type: of, Status: status})
	return n
}

// GPUs sets the node's number of GPUs.
func (n *NodeWrapper) GPUs(count int) *NodeWrapper { return n.put(gpuResource, devices(count)) }

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
	return n.put(name, resource.MustParse(quantity))
}

func (n *NodeWrapper) put(name v1.ResourceName, q resource.Quantity) *NodeWrapper {
	set(&n.node.Status.Capacity, name, q)
	set(&n.node.Status.Allocatable, name, q)
	return n
}
