// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	systemNamespace = release.Namespace
	gpusPerNode     = 8
	// leaseSeconds is longer than any run, so that nobody need renew a Lease.
	leaseSeconds = 24 * 60 * 60
	// clients is how many requests of the load generator are under way at once.
	clients = 32
)

// machines are the kinds of node, dealt out in turn: one with NVLink, one without.
var machines = []string{"dgx1-v100", "v100-pcie-8"}

// addNodes makes the nodes with what an exporter and an agent would publish.
func addNodes(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, n int, compact bool, racks int) error {
	kinds, err := machineKinds()
	if err != nil {
		return err
	}
	now := metav1.NowMicro()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range n {
		g.Go(func() error {
			labels := map[string]string{}
			if racks > 0 {
				labels[rackLabel] = fmt.Sprintf("rack-%03d", i*racks/n)
			}
			return addNode(ctx, kube, dyn, i, kinds[i%len(kinds)], labels, now, compact)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the nodes: %w", err)
	}
	return nil
}

// nodeName is zero-padded, so that the order of names is the order of making.
func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// machineKinds reads the catalogue, which is parsed anew each time it is asked.
var machineKinds = sync.OnceValues(func() ([]*machine.Machine, error) {
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

func addNode(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, number int, m *machine.Machine, labels map[string]string, now metav1.MicroTime, compact bool) error {
	name := nodeName(number)
	graph, err := m.GraphFor(name)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	spec := &devcluster.NodeSpec{Name: name, Machine: m.Name, Labels: labels}
	node := devcluster.NodeObject(spec, graph)
	for _, list := range []v1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list[ownResource(number)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	node, err = kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make node %s: %w", name, err)
	}
	topology := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, graph)
	if compact {
		topology.Spec.Compact()
	}
	topology.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind}
	topology.Spec.NodeUID, topology.Spec.BootID = node.UID, node.Status.NodeInfo.BootID
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(topology)
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", name, err)
	}
	_, err = dyn.Resource(v1alpha1.GroupVersionResource).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the topology of %s: %w", name, err)
	}
	for _, prefix := range []string{exporter.LeasePrefix, exporter.AgentLeasePrefix} {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: systemNamespace},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(name), RenewTime: &now, LeaseDurationSeconds: new(int32(leaseSeconds)),
			},
		}
		if _, err := kube.CoordinationV1().Leases(systemNamespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Lease %s: %w", lease.Name, err)
		}
	}
	return nil
}

// since is the time since t in seconds.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
