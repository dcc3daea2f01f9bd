// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// customNode creates a node of a machine that is not in the catalogue. Its graph is not published.
func (e *testEnv) customNode(t *testing.T, name string, g *nvtopo.Graph) {
	t.Helper()
	spec := devcluster.NodeSpec{Name: name, Machine: "custom"}
	if _, err := e.client.CoreV1().Nodes().Create(t.Context(), devcluster.NodeObject(&spec, g), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.graphs[name] = g
}

// plainNode creates a node of 8 CPUs and no GPUs.
func (e *testEnv) plainNode(t *testing.T, name string) {
	t.Helper()
	cpus, err := nvtopo.ParseCPUList("0-7")
	if err != nil {
		t.Fatal(err)
	}
	g, err := nvtopo.NewGraph(nil, []nvtopo.NUMANode{{CPUs: cpus, Memory: 64 << 30}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.customNode(t, name, g)
}

// testReservedNodes checks that pods without GPUs stay off GPU nodes as long as other nodes have room,
// and no longer.
func (a *across) testReservedNodes(t *testing.T) {
	plain := []string{"plain-0", "plain-1"}
	for _, node := range plain {
		a.plainNode(t, node)
	}
	defer a.removeNodes(t, plain...)
	a.awaitOpen(t, plain, func() *v1.Pod { return wish(preBindProfile, 0, nil).Obj() })
	gpuNodes := append(slices.Clone(a.good), a.poor...)
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			defer a.dropAll(t)
			// Each takes two of the 16 CPUs of the nodes without GPUs.
			var names []string
			for range 8 {
				pod := gpuPod(a.freshName("cpu"), p, 0).PriorityClass("low").Obj()
				a.create(t, pod)
				names = append(names, pod.Name)
			}
			on := map[string][]string{} // node -> pods
			for _, name := range names {
				node := a.bound(t, name).Spec.NodeName
				on[node] = append(on[node], name)
			}
			if len(on[plain[0]]) != 4 || len(on[plain[1]]) != 4 {
				t.Fatalf("with room on %v, the pods are on %v", plain, on)
			}
			// These could evict those, and must not.
			for range 3 {
				pod := gpuPod(a.freshName("cpu-more"), p, 0).PriorityClass("high").Obj()
				if got, _ := a.wantUndisturbed(t, pod); !slices.Contains(gpuNodes, got.Spec.NodeName) {
					t.Errorf("a pod is on %s, which is full", got.Spec.NodeName)
				}
			}
			pinned := wish(p, 0, daemonOf(a.good[1])).PriorityClass("high").Obj()
			pinned.Name = a.freshName("daemon")
			if got, _ := a.wantUndisturbed(t, pinned); got.Spec.NodeName != a.good[1] {
				t.Errorf("the pod pinned to %s is on %s", a.good[1], got.Spec.NodeName)
			}
			// One pod is deleted: there is room again, on the node that is the worst for kube-scheduler's own
			// scores, which spread. A pod that may use GPU nodes goes to one of them.
			a.drop(t, on[plain[1]][0])
			open := gpuPod(a.freshName("cpu-open"), openProfile, 0).Obj()
			if got, delta := a.wantUndisturbed(t, open); !slices.Contains(gpuNodes, got.Spec.NodeName) || delta.listed != 0 {
				t.Errorf("with reserveGPUNodes: false the pod is on %s, after %.0f lists", got.Spec.NodeName, delta.listed)
			}
			back := gpuPod(a.freshName("cpu-back"), p, 0).Obj()
			if got, _ := a.wantUndisturbed(t, back); got.Spec.NodeName != plain[1] {
				t.Errorf("with room on %s only, the pod is on %s", plain[1], got.Spec.NodeName)
			}
			// Room that another plugin refuses: the list is in vain.
			a.dropAll(t)
			for _, node := range plain {
				a.placed(t, node, gpuPod(a.freshName("filler"), "", 0).With(withPort).PriorityClass("low").Obj())
			}
			a.awaitShut(t, plain, func() *v1.Pod { return wish(p, 0, withPort).PriorityClass("low").Obj() })
			ported := wish(p, 0, withPort).PriorityClass("high").Obj()
			ported.Name = a.freshName("cpu-port")
			if got, delta := a.wantUndisturbed(t, ported); !slices.Contains(gpuNodes, got.Spec.NodeName) || delta.recovered == 0 {
				t.Errorf("with its port taken on %v the pod is on %s, after %.0f recoveries", plain, got.Spec.NodeName, delta.recovered)
			}
		})
	}
}

// removeNodes removes nodes and their published objects.
func (e *testEnv) removeNodes(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := e.client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(fmt.Errorf("remove node %s: %w", name, err))
		}
		delete(e.graphs, name)
	}
}
