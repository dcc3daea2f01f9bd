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

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/release"
)

const (
	// GPUs is how many each node has.
	GPUs = 8
	// LeaseSeconds is longer than any run, so that nobody need renew a Lease.
	LeaseSeconds = 24 * 60 * 60
	// clients is how many requests are under way at once.
	clients = 32
)

// Options say how the nodes differ from those of the catalogue's machines. The zero value is
// that they do not.
type Options struct {
	Labels  func(i int) map[string]string // further labels
	Devices func(i int) v1.ResourceList   // further extended resources
}

// machines are the kinds of node, dealt out in turn: one with NVLink, one without.
var machines = []string{"dgx1-v100", "v100-pcie-8"}

// Add makes n nodes with their topologies and the Leases of their exporters and agents.
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

// Name is the name of a node. It is zero-padded, so that the order of names is the order of making.
func Name(i int) string { return fmt.Sprintf("node-%05d", i) }

// Kinds are the machines that the nodes are, in turn. It reads the catalogue, which is parsed anew each time it is asked.
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

// Objects are what stands for one node.
type Objects struct {
	Node     *v1.Node
	Topology *v1alpha1.NodeGPUTopology // of the Node's boot, and of its UID once that is set
	Leases   []*coordinationv1.Lease   // of exporter and agent
}

// Make makes the objects of node number, which is a machine m.
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
	out := &Objects{Node: devcluster.NodeObject(spec, graph), Topology: v1alpha1.FromGraph(name, v1alpha1.DefaultResource, graph)}
	if o.Devices != nil {
		maps.Copy(out.Node.Status.Capacity, o.Devices(number))
		maps.Copy(out.Node.Status.Allocatable, o.Devices(number))
	}
	out.Topology.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind}
	out.Topology.Spec.BootID = out.Node.Status.NodeInfo.BootID
	now := metav1.NowMicro()
	for _, prefix := range []string{exporter.LeasePrefix, exporter.AgentLeasePrefix} {
		out.Leases = append(out.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: release.Namespace},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(name), RenewTime: &now, LeaseDurationSeconds: new(int32(LeaseSeconds)),
			},
		})
	}
	return out, nil
}

func addNode(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, number int, m *machine.Machine, o *Options) error {
	of, err := Make(number, m, o)
	if err != nil {
		return err
	}
	name := of.Node.Name
	node, err := kube.CoreV1().Nodes().Create(ctx, of.Node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make node %s: %w", name, err)
	}
	of.Topology.Spec.NodeUID = node.UID
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(of.Topology)
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", name, err)
	}
	_, err = dyn.Resource(v1alpha1.GroupVersionResource).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the topology of %s: %w", name, err)
	}
	for _, lease := range of.Leases {
		if _, err := kube.CoordinationV1().Leases(release.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Lease %s: %w", lease.Name, err)
		}
	}
	return nil
}
