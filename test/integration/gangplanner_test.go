// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// outside plans gangs as the scheduler should, from public data at the API server: labels of nodes,
// published graphs and the annotations of pods. Of the scheduler's own code it uses only the planner and
// the tables.
type outside struct {
	client  *testEnv
	tree    *fabric.Tree
	tables  []*nvtopo.Tables // by node of the tree
	slotter *fabric.SlotCounter
}

// seat is a pod's node and its devices on it.
type seat struct {
	Node string
	GPUs string // positions in the node's graph
}

// trialGang is a gang of equal members.
type trialGang struct {
	name       string
	pods, gpus int
	notes      notes
	wishes     fabric.Request // without shapes and members
	mixed      bool           // members may get several models
}

func (g *trialGang) String() string {
	return fmt.Sprintf("gang %s of %d pods of %d GPUs %v", g.name, g.pods, g.gpus, g.notes)
}

func (e *testEnv) planner(t *testing.T) *outside {
	t.Helper()
	o := &outside{client: e, slotter: fabric.NewSlotCounter()}
	nodes, err := e.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The links of fabricOfGangs: of two models the one with the faster all-reduce is taken.
	inside, outside := fabric.Link{Bandwidth: 100e6, Latency: 100_000}, fabric.Link{Bandwidth: 50e6, Latency: 500_000}
	spec := fabric.Spec{Levels: []fabric.Level{{Name: "spine", Link: outside}, {Name: "rack", Link: inside}}, Root: outside}
	for i := range nodes.Items {
		labels := nodes.Items[i].Labels
		spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: nodes.Items[i].Name, Path: []string{labels[spineLabel], labels[rackLabel]}})
	}
	tree, faults, err := fabric.NewTree(&spec)
	if err != nil || len(faults) > 0 {
		t.Fatal(err, faults)
	}
	o.tree, o.tables = tree, make([]*nvtopo.Tables, tree.Len())
	dyn, err := dynamic.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	list, err := dyn.Resource(v1alpha1.GroupVersionResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	registry := nvtopo.NewRegistry(nvtopo.DefaultWeights())
	for i := range list.Items {
		var topology v1alpha1.NodeGPUTopology
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &topology); err != nil {
			t.Fatal(err)
		}
		graphs, err := topology.Graphs()
		node, known := tree.Node(topology.Name)
		if err != nil || !known {
			t.Fatalf("the topology of %s: %v", topology.Name, err)
		}
		o.tables[node] = registry.Tables(graphs[v1alpha1.DefaultResource])
	}
	if missing := slices.Index(o.tables, nil); missing >= 0 {
		t.Fatalf("node %s has no topology", tree.Name(missing))
	}
	return o
}

// used returns the allocated GPUs of each node of the tree.
func (o *outside) used(t *testing.T) []nvtopo.Mask {
	t.Helper()
	pods, err := o.client.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := make([]nvtopo.Mask, o.tree.Len())
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" {
			t.Fatalf("pod %s is not bound; nothing is to be under way", pod.Name)
		}
		node, gpus := o.given(t, pod)
		if used[node]&gpus != 0 {
			t.Fatalf("GPUs of pod %s on %s are another pod's, too", pod.Name, pod.Spec.NodeName)
		}
		used[node] |= gpus
	}
	return used
}

// given returns a bound pod's node and GPUs.
func (o *outside) given(t *testing.T, pod *v1.Pod) (node int, gpus nvtopo.Mask) {
	t.Helper()
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil || a.Node != pod.Spec.NodeName {
		t.Fatalf("pod %s on %s: %v, %+v", pod.Name, pod.Spec.NodeName, err, a)
	}
	node, known := o.tree.Node(a.Node)
	if !known {
		t.Fatalf("pod %s is on %s", pod.Name, a.Node)
	}
	gpus, missing := o.tables[node].Graph().Positions(a.GPUs(v1alpha1.DefaultResource))
	if len(missing) > 0 {
		t.Fatalf("pod %s has %v, which %s has not", pod.Name, missing, a.Node)
	}
	return node, gpus
}

// plan returns the places of the members, by rank, beside the used GPUs.
func (o *outside) plan(g *trialGang, used []nvtopo.Mask) (*fabric.Plan, error) {
	request := g.wishes
	shape := fabric.Shape{GPUs: g.gpus, Kind: 1, Nodes: make([]fabric.Supply, o.tree.Len())}
	if g.mixed {
		shape.Kind = 0
	}
	for node, tables := range o.tables {
		all := nvtopo.FullMask(tables.Graph().Len())
		m := &fabric.Machine{Tables: tables, Healthy: all, Free: all &^ used[node]}
		if m.Free.Len() >= g.gpus {
			shape.Nodes[node].Slots = o.slotter.Slots(m, g.gpus, nvtopo.Constraint{AllowMixedModels: g.mixed})
		}
	}
	request.Shapes, request.Members = []fabric.Shape{shape}, make([]fabric.Member, g.pods)
	return fabric.Place(o.tree, &request)
}

// seats returns the seats of a plan, by rank.
func (o *outside) seats(plan *fabric.Plan) []seat {
	out := make([]seat, len(plan.Nodes))
	for rank, node := range plan.Nodes {
		out[rank] = seatOf(o.tree.Name(node), plan.Sets[rank])
	}
	return out
}

func seatOf(node string, gpus nvtopo.Mask) seat { return seat{node, fmt.Sprint(gpus.Positions())} }

// placed waits until a gang is bound and returns the seats of its ranks.
func (o *outside) placed(t *testing.T, g *trialGang) []seat {
	t.Helper()
	var pods *v1.PodList
	testkit.Eventually(t, waitLimit, g.String()+" is bound", func(ctx context.Context) (bool, string) {
		var err error
		pods, err = o.client.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: gangLabel + "=" + g.name})
		if err != nil {
			return false, err.Error()
		}
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				return false, fmt.Sprintf("pod %s: %+v", pods.Items[i].Name, pods.Items[i].Status.Conditions)
			}
		}
		return len(pods.Items) == g.pods, fmt.Sprintf("%d pods", len(pods.Items))
	})
	out := make([]seat, g.pods)
	for i := range pods.Items {
		rank, err := strconv.Atoi(pods.Items[i].Annotations[gangrequest.RankKey])
		if err != nil || rank < 0 || rank >= g.pods || out[rank].Node != "" {
			t.Fatalf("pod %s has rank %q of %d", pods.Items[i].Name, pods.Items[i].Annotations[gangrequest.RankKey], g.pods)
		}
		node, gpus := o.given(t, &pods.Items[i])
		out[rank] = seatOf(o.tree.Name(node), gpus)
	}
	return out
}
