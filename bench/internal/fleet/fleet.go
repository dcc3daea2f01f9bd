// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

const (
	// GPUs is the number of GPUs of each node.
	GPUs = 8
	// LeaseSeconds is longer than any run, so that no Lease needs to be renewed.
	LeaseSeconds = 24 * 60 * 60
	// clients is the number of concurrent requests.
	clients = 32
)

// Options are the differences of the nodes from the catalogue's machines. The zero value is none.
type Options struct {
	Labels  func(i int) map[string]string // further labels
	Devices func(i int) v1.ResourceList   // further extended resources
}

// machines are the kinds of node, used in turn: one with NVLink, one without.
var machines = []string{"dgx1-v100", "v100-pcie-8"}

// Add creates n nodes with their topologies and the Leases of their exporters and agents.
func Add(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, n int, o Options) error {
	kinds, err := Kinds()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range n {
		g.Go(func() error { return addNode(ctx, kube, dyn, i, kinds[i%len(kinds)], &o) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the nodes: %w", err)
	}
	return nil
}

// Name returns the name of a node. It is zero-padded, so that the order of names is the order of
// creation.
func Name(i int) string { return fmt.Sprintf("node-%05d", i) }

// Kinds returns the machines that the nodes are, in turn. It caches them, since the catalogue is parsed
// at each lookup.
var Kinds = sync.OnceValues(func() ([]*machine.Machine, error) {
	kinds := make([]*machine.Machine, len(machines))
	for i, name := range machines {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("look up a machine: %w", err)
		}
		kinds[i] = m
	}
	return kinds, nil
})

// Objects are the objects of one node.
type Objects struct {
	Node     *v1.Node
	Topology *v1alpha1.NodeGPUTopology // for the Node's boot, and for its UID once that is set
	Leases   []*coordinationv1.Lease   // of exporter and agent
}

// Make returns the objects of node number, which is a machine m.
func Make(number int, m *machine.Machine, o *Options) (*Objects, error) {
	name := Name(number)
	graph, err := m.GraphFor(name)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	spec := &devcluster.NodeSpec{Name: name, Machine: m.Name}
	if o.Labels != nil {
		spec.Labels = o.Labels(number)
	}
	node := devcluster.NodeObject(spec, graph)
	if o.Devices != nil {
		maps.Copy(node.Status.Capacity, o.Devices(number))
		maps.Copy(node.Status.Allocatable, o.Devices(number))
	}
	return objectsOf(node, graph, LeaseSeconds), nil
}

// objectsOf returns the objects of a Node with this graph, with Leases of leaseSeconds.
func objectsOf(node *v1.Node, graph *nvtopo.Graph, leaseSeconds int32) *Objects {
	out := &Objects{Node: node, Topology: v1alpha1.FromGraph(node.Name, v1alpha1.DefaultResource, graph)}
	out.Topology.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind}
	out.Topology.Spec.BootID, out.Topology.Spec.NodeUID = node.Status.NodeInfo.BootID, node.UID
	now := metav1.NowMicro()
	for _, prefix := range []string{exporter.LeasePrefix, exporter.AgentLeasePrefix} {
		out.Leases = append(out.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + node.Name, Namespace: release.Namespace},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(node.Name), RenewTime: &now, LeaseDurationSeconds: new(leaseSeconds)},
		})
	}
	return out
}

func addNode(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, number int, m *machine.Machine, o *Options) error {
	of, err := Make(number, m, o)
	if err != nil {
		return err
	}
	node, err := kube.CoreV1().Nodes().Create(ctx, of.Node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make node %s: %w", of.Node.Name, err)
	}
	of.Topology.Spec.NodeUID = node.UID
	return of.publish(ctx, kube, dyn)
}

// Publish creates the objects that exporter and agent of an existing Node publish, which is a machine m:
// its topology, and Leases of leaseSeconds. It returns the Leases.
func Publish(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, node *v1.Node, m *machine.Machine, leaseSeconds int32) ([]*coordinationv1.Lease, error) {
	graph, err := m.GraphFor(node.Name)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	of := objectsOf(node, graph, leaseSeconds)
	return of.Leases, of.publish(ctx, kube, dyn)
}

// publish creates all objects except the Node.
func (of *Objects) publish(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(of.Topology)
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", of.Node.Name, err)
	}
	_, err = dyn.Resource(v1alpha1.GroupVersionResource).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the topology of %s: %w", of.Node.Name, err)
	}
	for _, lease := range of.Leases {
		if _, err := kube.CoordinationV1().Leases(release.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Lease %s: %w", lease.Name, err)
		}
	}
	return nil
}
