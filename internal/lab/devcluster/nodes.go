// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// maxPods is kubelet's default limit of pods on a node.
const maxPods = 110

// NodeSpec describes a simulated node.
type NodeSpec struct {
	Name    string
	Machine string // a name of package machine's catalogue
	// Labels and Annotations are added to the node's own.
	Labels, Annotations map[string]string
	Taints              []v1.Taint
}

// Graph returns the link graph of the node.
func (s *NodeSpec) Graph() (*nvtopo.Graph, error) {
	m, err := machine.Lookup(s.Machine)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", s.Name, err)
	}
	g, err := m.GraphFor(s.Name)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", s.Name, err)
	}
	return g, nil
}

// Resource returns the extended resource under which the node offers its GPUs.
func (s *NodeSpec) Resource() string {
	m, err := machine.Lookup(s.Machine)
	if err != nil || m.Resource == "" {
		return v1alpha1.DefaultResource
	}
	return m.Resource
}

// AddNode makes the node, ready and with the CPUs, memory and GPUs of its
// machine. Its link graph is published by RunExporters.
func (c *Cluster) AddNode(ctx context.Context, spec NodeSpec) (*v1.Node, error) {
	g, err := spec.Graph()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	node, err := client.CoreV1().Nodes().Create(ctx, NodeObject(&spec, g), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", spec.Name, err)
	}
	return node, nil
}

// AddNodes makes several nodes.
func (c *Cluster) AddNodes(ctx context.Context, specs []NodeSpec) error {
	for i := range specs {
		if _, err := c.AddNode(ctx, specs[i]); err != nil {
			return err
		}
	}
	return nil
}

// RemoveNodes ends the exporters of nodes and deletes the nodes together with their published objects.
// Pods that are still bound to them would stay forever.
func (c *Cluster) RemoveNodes(ctx context.Context, names ...string) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	c.StopExporters(names...)
	for _, name := range names {
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove node %s: %w", name, err)
		}
	}
	return nil
}

// NodeObject returns the Node that AddNode creates from a spec whose graph is g, for callers that create
// thousands.
func NodeObject(spec *NodeSpec, g *nvtopo.Graph) *v1.Node {
	cpus, memory := 0, int64(0)
	for i := range g.NUMANodes {
		cpus += len(g.NUMANodes[i].CPUs)
		memory += g.NUMANodes[i].Memory
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU:                   *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		v1.ResourceMemory:                *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourcePods:                  *resource.NewQuantity(maxPods, resource.DecimalSI),
		v1.ResourceName(spec.Resource()): *resource.NewQuantity(int64(g.Len()), resource.DecimalSI),
	}
	labels := map[string]string{v1.LabelHostname: spec.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}
	maps.Copy(labels, spec.Labels)
	annotations := map[string]string{AnnotationKwokNode: "fake"}
	maps.Copy(annotations, spec.Annotations)
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: labels, Annotations: annotations},
		Spec:       v1.NodeSpec{Taints: spec.Taints},
		Status: v1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity.DeepCopy(),
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: address(spec.Name)},
				{Type: v1.NodeHostName, Address: spec.Name},
			},
			Conditions: []v1.NodeCondition{{
				Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Simulated",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
			NodeInfo: v1.NodeSystemInfo{
				MachineID: string(uuid.NewUUID()), SystemUUID: string(uuid.NewUUID()), BootID: string(uuid.NewUUID()),
				OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.35.8",
				KernelVersion: "simulated", OSImage: spec.Machine, ContainerRuntimeVersion: "simulated://1",
			},
		},
	}
}

// address returns an invented address for a node in 198.18.0.0/15, the range that RFC 2544 sets aside for
// tests, so that it never leads anywhere.
func address(node string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // a hash never fails to write
	v := h.Sum32()
	return net.IPv4(198, byte(18+v>>16&1), byte(v>>8), byte(v)).String()
}
