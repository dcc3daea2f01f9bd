// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

// randomCluster draws a cluster with pods that have GPUs, that wait and that have ended.
func randomCluster(t *testing.T, seed uint64) *viewtest.Cluster {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	c := viewtest.New()
	machines := []string{"dgx-h100", "dgx1-v100", "a100-pcie-4-bridged", "hgx-a100-4"}
	for i := range 2 + r.IntN(5) {
		if err := c.AddNode("n"+strconv.Itoa(i), machines[r.IntN(len(machines))], "topology.kubernetes.io/rack", "r"+strconv.Itoa(r.IntN(3))); err != nil {
			t.Fatal(err)
		}
		c.Nodes[i].Spec.Unschedulable = r.IntN(6) == 0
	}
	for i := range r.IntN(14) {
		node := c.Nodes[r.IntN(len(c.Nodes))].Name
		first := r.IntN(3)
		p := c.AddPod("p"+strconv.Itoa(i), node, 2, first, first+1)
		switch r.IntN(5) {
		case 0:
			p.Spec.NodeName, p.Annotations, p.Status.Phase = "", map[string]string{}, v1.PodPending
		case 1:
			p.Status.Phase = []v1.PodPhase{v1.PodSucceeded, v1.PodFailed}[r.IntN(2)]
		case 2:
			p.Annotations = map[string]string{"nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": "2"}
		}
	}
	return c
}

// TestDocumentConsistency: documents agree with the commands: on random clusters the API says what
// the packages say that the commands print, of the same objects at the same time.
func TestDocumentConsistency(t *testing.T) {
	for seed := range uint64(25) {
		c := randomCluster(t, seed)
		b := newTestEnv(t, c, nil)
		objects := &b.watch.Snapshot().World.Objects
		objects.Now = c.Now
		v := clusterview.Of(objects, clusterview.Options{})
		name := fmt.Sprint("seed ", seed)

		var cluster documents.Cluster
		b.get(t, "/api/v1/cluster", &cluster)
		agree(t, name+", supply", v.Supply, cluster.Supply)
		agree(t, name+", problems", append([]string{}, v.Problems...), cluster.Problems)
		if len(cluster.Nodes) != len(v.Nodes) {
			t.Fatalf("%s: %d nodes, want %d", name, len(cluster.Nodes), len(v.Nodes))
		}
		for i, n := range v.Nodes {
			agreeNode(t, name, n, &cluster.Nodes[i])
			var detail map[string]any
			b.get(t, "/api/v1/nodes/"+n.Name, &detail)
			classes := detail["links"].(map[string]any)["classes"].([]any)
			if len(classes) != len(n.GPUs) {
				t.Errorf("%s, node %s: %d rows of links, want %d", name, n.Name, len(classes), len(n.GPUs))
			}
			delete(detail, "links")
			delete(detail, "levels")
			agree(t, name+", node "+n.Name, n, detail)
		}

		var pods documents.Workloads
		b.get(t, "/api/v1/workloads", &pods)
		if len(pods.Items) != len(c.Pods) {
			t.Errorf("%s: %d workloads, want the %d pods", name, len(pods.Items), len(c.Pods))
		}
		counted := map[string]int{}
		for i := range pods.Items {
			counted[pods.Items[i].State]++
			agreeWorkload(t, name, v, &pods.Items[i])
			b.agreeExplanation(t, name, &pods.Items[i])
		}
		for state, n := range pods.Counts {
			if counted[state] != n {
				t.Errorf("%s: %d are %s, and %d are said to be", name, counted[state], state, n)
			}
		}
	}
}

// agree compares what two values are in JSON.
func agree(t *testing.T, what string, want, got any) {
	t.Helper()
	var a, b any
	for _, x := range []struct {
		from any
		to   *any
	}{{want, &a}, {got, &b}} {
		data, err := json.Marshal(x.from)
		if err == nil {
			err = json.Unmarshal(data, x.to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("%s (-packages,+API):\n%s", what, diff)
	}
}

// agreeNode counts the GPUs of a node again.
func agreeNode(t *testing.T, name string, n *clusterview.Node, got *documents.Node) {
	t.Helper()
	signs := map[rune]clusterview.State{'f': clusterview.Free, 'u': clusterview.Used, 'd': clusterview.Degraded, 'm': clusterview.MIG, 'x': clusterview.Unhealthy}
	for i, sign := range got.States {
		if signs[sign] != n.GPUs[i].State {
			t.Errorf("%s, node %s: GPU %d is %c, want %s", name, n.Name, i, sign, n.GPUs[i].State)
		}
	}
	if len(got.States) != len(n.GPUs) || got.Name != n.Name || got.GPUs != len(n.GPUs) || got.Used != n.Supply.UsedGPUs || got.Free != n.Supply.FreeGPUs {
		t.Errorf("%s, node %s: %+v", name, n.Name, got)
	}
	// CountedGPUs are held by pods, or not offered by kubelet.
	if known := strings.Count(got.States, "u"); got.Used < known || got.Used > known+n.CountedGPUs {
		t.Errorf("%s, node %s: %d are used, of which %d are known; %d cannot be given", name, n.Name, got.Used, known, n.CountedGPUs)
	}
	for _, s := range n.Supply.Slots {
		if size := strconv.Itoa(s.GPUs); got.Slots[size] != s.Free || got.Capacity[size] != s.Capacity {
			t.Errorf("%s, node %s: %d of %d slots of %s, want %d of %d", name, n.Name, got.Slots[size], got.Capacity[size], size, s.Free, s.Capacity)
		}
	}
}

// agreeWorkload looks for the pod on its node.
func agreeWorkload(t *testing.T, name string, v *clusterview.View, got *documents.Workload) {
	t.Helper()
	ended := got.State == documents.Ended || got.State == documents.Failing
	n := v.Node(got.Node)
	if (got.State == documents.Pending) != (got.Node == "") || !ended && got.Node != "" && n == nil {
		t.Fatalf("%s, pod %s: %s on node %q", name, got.Name, got.State, got.Node)
	}
	if n == nil || ended {
		if len(got.GPUIndices) > 0 || got.Quality != documents.Unknown {
			t.Errorf("%s, pod %s: it is %s and has %v", name, got.Name, got.State, got.GPUIndices)
		}
		return
	}
	for i := range n.Pods {
		p := &n.Pods[i]
		if p.Name != got.Name {
			continue
		}
		if diff := cmp.Diff(p.GPUs, got.GPUIndices); diff != "" {
			t.Errorf("%s, pod %s has (-view,+API):\n%s", name, got.Name, diff)
		}
		if p.Ring != nil && (p.Ring.Class != got.LinkClass || got.Quality != p.Ring.BandwidthGBps/p.Ring.BestBandwidthGBps) {
			t.Errorf("%s, pod %s: %s of quality %v, want %+v", name, got.Name, got.LinkClass, got.Quality, p.Ring)
		}
	}
}

func (e *testEnv) agreeExplanation(t *testing.T, name string, w *documents.Workload) {
	t.Helper()
	world := e.watch.Snapshot().Of(w.Namespace)
	world.Now = e.clock.Now()
	want, err := explain.Pod(world, w.Namespace, w.Name)
	if err != nil {
		t.Fatal(err)
	}
	var got explain.Explanation
	e.clock.Step(gap / 2) // so that the limit of requests is another test's
	e.get(t, "/api/v1/explain/pod/"+w.FullName(), &got)
	agree(t, name+", explanation of "+w.Name, want, got)
}

// TestEmptyLists: lists are never null. A page goes through them without asking.
func TestEmptyLists(t *testing.T) {
	b := newTestEnv(t, viewtest.New(), nil)
	for path, lists := range map[string][]string{
		"cluster": {"nodes", "levels", "problems"}, "workloads": {"items"}, "gangs": {"items"}, "pools": {"items"}, "pools/bills": {"items", "problems"}, "pools/usage": {"items"},
	} {
		var got map[string]any
		b.get(t, "/api/v1/"+path, &got)
		for _, field := range lists {
			if _, ok := got[field].([]any); !ok {
				t.Errorf("%s: %s is %v", path, field, got[field])
			}
		}
	}
}
