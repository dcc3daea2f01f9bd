// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const gpu = v1alpha1.DefaultResource

// chosen is when all choices are made, an hour after the graphs were published and an
// hour before the World is examined.
var chosen = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return new(metav1.NewTime(chosen.Add(d))) }

// testEnv is a World under construction.
type testEnv struct {
	*World
	graphs map[string]*nvtopo.Graph
}

// newTestEnv has two DGX-1: "a" with a living agent and "b" with none.
func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	c := &testEnv{World: &World{Objects: clusterobjects.Objects{Now: chosen.Add(time.Hour)}}, graphs: map[string]*nvtopo.Graph{}}
	c.addNode(tb, "a", true)
	c.addNode(tb, "b", false)
	return c
}

func (e *testEnv) addNode(tb testing.TB, name string, enforced bool) {
	tb.Helper()
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		tb.Fatal(err)
	}
	e.graphs[name] = g
	t := v1alpha1.FromGraph(name, gpu, g)
	t.UID, t.Spec.NodeUID, t.CreationTimestamp = types.UID("topology-"+name), types.UID("node-"+name), *at(-time.Hour)
	t.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "nvtopo-exporter", Time: at(-time.Hour), FieldsV1: fields("f:spec")},
		{Manager: "nvtopo-exporter", Subresource: "status", Time: at(-time.Hour), FieldsV1: fields("f:gpuHealth")},
	}
	e.Topologies = append(e.Topologies, *t)
	e.Nodes = append(e.Nodes, *testobj.Node(name).UID("node-" + name).GPUs(g.Len()).Obj())
	lease := func(prefix string) {
		e.Leases = append(e.Leases, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: "nvtopo-system", Annotations: release.Marks()},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(e.Now)), LeaseDurationSeconds: new(int32(120))},
		})
	}
	lease(nodelease.ExporterPrefix)
	if enforced {
		lease(nodelease.AgentPrefix)
	}
}

func fields(names ...string) *metav1.FieldsV1 {
	var b strings.Builder
	b.WriteString(`{`)
	for i, n := range names {
		if i > 0 {
			b.WriteString(`,`)
		}
		b.WriteString(strconv.Quote(n) + `:{}`)
	}
	b.WriteString(`}`)
	return &metav1.FieldsV1{Raw: []byte(b.String())}
}

// pod adds a bound pod of the shipped profile with one container that has the GPUs of
// these indices, and asks for as many. The pointer is good until the next is added.
func (e *testEnv) pod(name, node string, gpus ...int) *v1.Pod {
	e.Pods = append(e.Pods, *testobj.Pod(name).UID("uid-" + name).Node(node).Scheduler(DefaultProfile).GPUs(len(gpus)).
		Phase(v1.PodRunning).Scheduled(chosen.Add(time.Second)).Obj())
	q := &e.Pods[len(e.Pods)-1]
	e.allocate(q, allocation.Container{Name: "main", Resource: gpu, GPUs: e.ids(node, gpus...)})
	return q
}

func (e *testEnv) ids(node string, gpus ...int) []string {
	var out []string
	for _, i := range gpus {
		out = append(out, e.graphs[node].GPUs[i].UUID)
	}
	return out
}

// allocate writes the pod's allocation and its flat copies anew.
func (e *testEnv) allocate(p *v1.Pod, parts ...allocation.Container) {
	a := &allocation.Allocation{Version: allocation.Version, Node: p.Spec.NodeName, PodUID: p.UID, Assumed: chosen, Containers: parts}
	text, err := a.Encode()
	if err != nil {
		panic(err) // of a test's own value
	}
	p.Annotations[allocation.Key] = text
	if len(parts) == 1 {
		p.Annotations[allocation.GPUIDsKey] = strings.Join(parts[0].GPUs, ",")
	}
}

// record adds what kubelet recorded for the pod's container.
func (e *testEnv) record(p *v1.Pod, container string, gpus ...int) {
	for i := range e.Topologies {
		if t := &e.Topologies[i]; t.Name == p.Spec.NodeName {
			t.Status.Allocations = append(t.Status.Allocations, v1alpha1.Allocation{
				PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: container, Resource: gpu,
				GPUs: e.ids(t.Name, gpus...), State: v1alpha1.StateConfirmed,
			})
		}
	}
}

// corrected says that the pod's allocation was written a minute after it was bound.
func corrected(p *v1.Pod) {
	p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "nvtopo-scheduler", Time: at(time.Minute), FieldsV1: fields("f:" + allocation.Key),
	})
}

func (e *testEnv) topology(name string) *v1alpha1.NodeGPUTopology {
	for i := range e.Topologies {
		if e.Topologies[i].Name == name {
			return &e.Topologies[i]
		}
	}
	return nil
}

// slugs are the invariants of the findings, in order.
func slugs(vs []Violation) []string {
	out := []string{}
	for _, v := range vs {
		out = append(out, v.Invariant)
	}
	return out
}

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
