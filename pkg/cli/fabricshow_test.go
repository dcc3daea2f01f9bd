// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// sampleSwitches is the requirement's sample cluster with its switches.
const sampleSwitches = `node,switch,rack
node-0-0,tor-0,rack-0
node-0-1,tor-0,rack-0
node-0-2,tor-0,rack-0
node-0-3,tor-0,rack-0
node-1-0,tor-1,rack-1
node-1-1,tor-1,rack-1
node-1-2,tor-1,rack-1
node-1-3,tor-1,rack-1
`

const sampleTopology = `apiVersion: topology.nvtopo.dev/v1alpha1
kind: ClusterTopology
metadata: {name: default}
spec:
  levels:
  - {name: switch, nodeLabel: s, bandwidthGBps: "12.5", latencyMicros: 10}
  - {name: rack, nodeLabel: r, bandwidthGBps: 50, latencyMicros: "1.5"}
  root: {bandwidthGBps: 25, latencyMicros: 20, hops: 5}
  excluded: [{level: rack, domain: rack-0, reason: cooling}]
`

// showFiles are the flags for a cluster in files; with a topology if that is not empty.
func showFiles(t *testing.T, command, fabric, free, topology string) []string {
	t.Helper()
	args := append([]string{"fabric", command}, fabricFiles(t, fabric, free)[2:]...)
	if topology != "" {
		file := filepath.Join(t.TempDir(), "ct.yaml")
		if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--topology", file)
	}
	return args
}

func TestFabricShow(t *testing.T) {
	const free = "node,free\nnode-0-0,0 1 4 5\nnode-1-3,\n"
	cases := map[string]struct{ fabric, topology, flags, want string }{
		"text": {
			fabric: sampleSwitches,
			want: `DOMAIN        NODES  WHOLE  FREE   x8  x4  x2  x1
cluster       8      6      52/64  6   13  26  52
├─ tor-0      4      3      28/32  3   7   14  28
│  └─ rack-0  4      3      28/32  3   7   14  28
└─ tor-1      4      3      24/32  3   6   12  24
   └─ rack-1  4      3      24/32  3   6   12  24

Link  cluster  50 GB/s, 500 µs, 3 hops
Link  switch   50 GB/s, 500 µs, 3 hops
Link  rack     100 GB/s, 100 µs, 1 hop
`,
		},
		"one NUMA node each": {
			fabric: "node,rack\nnode-0-0,r\n", flags: "--policy single-numa-node",
			want: `DOMAIN   NODES  WHOLE  FREE  x8  x4  x2  x1
cluster  1      0      4/8   0   0   2   4
└─ r     1      0      4/8   0   0   2   4

Link  cluster  50 GB/s, 500 µs, 3 hops
Link  rack     100 GB/s, 100 µs, 1 hop
`,
		},
		"a ClusterTopology, nodes, and one that is alone": {
			fabric: "node,rack,switch\nnode-0-0,rack-0,a\nnode-0-1,rack-0,a\nnode-1-3,rack-1,a\nalone,,\n", topology: sampleTopology, flags: "--show-nodes",
			want: `DOMAIN             NODES  WHOLE  FREE   x8  x4  x2  x1
cluster            4      1      8/32   1   2   4   8
├─ a               3      0      0/24   0   0   0   0
│  ├─ rack-0       2      1      12/16  1   3   6   12  excluded: cooling
│  │  ├─ node-0-0  1      0      4/8    0   1   2   4
│  │  └─ node-0-1  1      1      8/8    1   2   4   8
│  └─ rack-1       1      0      0/8    0   0   0   0
│     └─ node-1-3  1      0      0/8    0   0   0   0
└─ alone           1      1      8/8    1   2   4   8

Link  cluster  25 GB/s, 20 µs, 5 hops
Link  switch   12.5 GB/s, 10 µs, 3 hops
Link  rack     50 GB/s, 1.5 µs, 1 hop
`,
		},
		"graphviz": {
			fabric: "node,rack\nnode-0-0,r\n", flags: "-o dot",
			want: `graph fabric {
  rankdir=LR
  node [shape=box]
  "cluster " [label="cluster cluster\n0 of 1 nodes whole, 4 of 8 GPUs free"]
  "rack r" [label="rack r\n0 of 1 nodes whole, 4 of 8 GPUs free"]
  "node node-0-0" [label="node-0-0\n4 of 8 GPUs free"]
  "rack r" -- "node node-0-0"
  "cluster " -- "rack r" [label="50 GB/s"]
}
`,
		},
		"JSON": {
			fabric: "node,rack\nnode-0-0,r\n", flags: "-o json",
			want: `{"links":[{"level":"cluster","bandwidthGBps":50,"latencyMicros":500,"hops":3},{"level":"rack","bandwidthGBps":100,"latencyMicros":100,"hops":1}],` +
				`"cluster":{"level":"cluster","name":"cluster","nodes":1,"gpus":8,"wholeNodes":0,"freeGPUs":4,"slots":{"1":4,"2":2,"4":1,"8":0},` +
				`"domains":[{"level":"rack","name":"r","path":"r","nodes":1,"gpus":8,"wholeNodes":0,"freeGPUs":4,"slots":{"1":4,"2":2,"4":1,"8":0},` +
				`"members":[{"name":"node-0-0","gpus":8,"free":[0,1,4,5],"slots":{"1":4,"2":2,"4":1,"8":0}}]}]}}` + "\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			used := free
			if !strings.Contains(tc.fabric, "node-1-3") {
				used = "node,free\nnode-0-0,0 1 4 5\n"
			}
			got := mustRun(t, "", append(showFiles(t, "show", tc.fabric, used, tc.topology), strings.Fields(tc.flags)...)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// TestFabricShowSummary: the summary equals the requirement's visualize_topology of its sample.
func TestFabricShowSummary(t *testing.T) {
	var want strings.Builder
	want.WriteString("Cluster Topology:\n" + strings.Repeat("=", 50) + "\n")
	for rack := range 2 {
		fmt.Fprintf(&want, "\nRack: rack-%d\n%s\n", rack, strings.Repeat("-", 30))
		for node := range 4 {
			fmt.Fprintf(&want, "  node-%d-%d: 8 GPUs, Switch: tor-%d\n", rack, node, rack)
		}
	}
	for name, fabric := range map[string]string{
		"as the requirement": sampleSwitches, "other names of levels": strings.Replace(sampleSwitches, "node,switch,rack", "node,spine,leaf", 1),
	} {
		got := mustRun(t, "", append(showFiles(t, "show", fabric, "node,free\n", ""), "-o", "summary")...)
		if diff := cmp.Diff(want.String(), got); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", name, diff)
		}
	}
	got := mustRun(t, "", append(showFiles(t, "show", "node,rack\nn,\n", "node,free\n", ""), "-o", "summary")...)
	if !strings.HasSuffix(got, "\nRack: -\n"+strings.Repeat("-", 30)+"\n  n: 8 GPUs, Switch: -\n") {
		t.Errorf("a node without a rack:\n%s", got)
	}
}

// TestFabricPlaceClusterTopology: links and excluded domains of the ClusterTopology are used.
func TestFabricPlaceClusterTopology(t *testing.T) {
	place := func(topology, flags string) *placedGang {
		t.Helper()
		out := &placedGang{}
		text := mustRun(t, "", append(showFiles(t, "place", sampleSwitches, "node,free\n", topology), strings.Fields(flags+" --gpus 8 --size 100MB -o json")...)...)
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := place(sampleTopology, "--pods 4")
	if diff := cmp.Diff(map[string][]string{"switch": {"tor-1"}, "rack": {"rack-1"}}, got.Domains); diff != "" {
		t.Errorf("domains (-want,+got):\n%s", diff)
	}
	if want := 2 * 3 * 100 / 1024.0 / 4 / 50 * 1e3; got.EstimateMs.Ring != want {
		t.Errorf("the ring takes %v ms, want %v at 50 GB/s", got.EstimateMs.Ring, want)
	}
	open := strings.Replace(sampleTopology, "  excluded:", "  overrides: [{level: rack, a: rack-0, b: tor-1/rack-1, bandwidthGBps: 1, latencyMicros: 1}]\n  #", 1)
	if got := place(open, "--pods 8"); got.EstimateMs.Ring != 2*7*100/1024.0/8/1*1e3 {
		t.Errorf("the ring takes %v ms by the override", got.EstimateMs.Ring)
	}
	for name, tc := range map[string]struct{ old, replacement, want string }{
		"a level that no column has": {"name: switch", "name: row", `the fabric has no level "row"`},
		"an unknown field":           {"  root:", "  roots:", `spec.roots: there is no such field`},
		"another kind":               {"kind: ClusterTopology", "kind: NodeGPUTopology", "want one ClusterTopology"},
		"a link that is none":        {`"12.5"`, "100G", "bandwidthGBps"},
		"an exclusion of nobody":     {"domain: rack-0", "domain: rack-9", `no node is in domain "rack-9"`},
	} {
		_, err := run(t, "", append(showFiles(t, "place", sampleSwitches, "node,free\n", strings.Replace(sampleTopology, tc.old, tc.replacement, 1)), "--pods", "1", "--gpus", "1")...)
		if ExitCode(err) != ExitInput || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tc.want)
		}
	}
}

func TestFabricShowFlags(t *testing.T) {
	for name, tc := range map[string]struct{ flags, want string }{
		"an unknown form":      {"-o xml", "--output"},
		"machines of no nodes": {"--nodes x", "--fabric is needed"},
		"files and a cluster":  {"--fabric x --nodes y --context z", "cannot be used with it"},
		"one input twice":      {"--fabric - --nodes y --topology -", "standard input"},
		"an unknown policy":    {"--policy x", "--policy"},
	} {
		_, err := run(t, "", append([]string{"fabric", "show"}, strings.Fields(tc.flags)...)...)
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// liveWorld is a cluster of DGX H100 by name, with labels.
func liveWorld(t *testing.T, nodes map[string]map[string]string) *clusterobjects.Objects {
	t.Helper()
	m, err := machine.Lookup("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	w := &clusterobjects.Objects{}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		g, err := m.GraphFor(name)
		if err != nil {
			t.Fatal(err)
		}
		topology := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, g)
		topology.Spec.NodeUID = types.UID("uid-" + name)
		w.Nodes = append(w.Nodes, *testobj.Node(name).UID("uid-" + name).Labels(nodes[name]).GPUs(g.Len()).Obj())
		w.Topologies = append(w.Topologies, *topology)
	}
	return w
}

// gpuOf is the UUID of a node's GPU.
func gpuOf(w *clusterobjects.Objects, node, gpu int) string {
	return w.Topologies[node].Spec.GPUs[gpu].ID
}

func TestFabricShowCluster(t *testing.T) {
	const rack = "topology.kubernetes.io/rack"
	w := liveWorld(t, map[string]map[string]string{"a": {rack: "r0"}, "b": {rack: "r0"}, "c": {rack: "r1"}, "d": {}, "e": {rack: "r1"}, "f": {rack: "r1"}})
	w.Nodes = append(w.Nodes, *testobj.Node("control").Obj())
	chosen := testobj.Pod("chosen").Node("a").GPUs(2).Obj()
	text, err := (&allocation.Allocation{
		Version: allocation.Version, PodUID: chosen.UID, Node: "a",
		Containers: []allocation.Container{{Name: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{gpuOf(w, 0, 0), gpuOf(w, 0, 3)}}},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	chosen.Annotations[allocation.Key] = text
	recorded, waiting := testobj.Pod("recorded").Node("b").GPUs(1).Obj(), testobj.Pod("waiting").GPUs(8).Obj()
	counted := testobj.Pod("counted").Node("b").GPUs(3).InitContainers(testobj.Container("first", 4)).Obj()
	ended := testobj.Pod("ended").Node("c").GPUs(8).Phase(v1.PodSucceeded).Obj()
	w.Pods = []v1.Pod{*chosen, *recorded, *counted, *ended, *waiting}
	w.Topologies[1].Status.Allocations = []v1alpha1.Allocation{{PodUID: recorded.UID, Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{gpuOf(w, 1, 0)}}}
	w.Topologies[2].Status.GPUHealth = []v1alpha1.GPUHealth{{ID: gpuOf(w, 2, 0)}, {ID: gpuOf(w, 2, 1), Healthy: true, Degraded: true}}
	w.Nodes[3].Spec.Unschedulable = true
	w.Topologies[4].Spec.NodeUID = "an earlier one"
	w.Topologies[5].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStale, Status: metav1.ConditionTrue}}
	var got strings.Builder
	con, err := (&pickOptions{policy: "best-effort"}).constraint(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := liveFabric(w, v1alpha1.DefaultResource).view(con).drawText(&got, true); err != nil {
		t.Fatal(err)
	}
	want := `DOMAIN      NODES  WHOLE  FREE   x8  x4  x2  x1
cluster     7      0      15/32  0   2   7   15
├─ r0       2      0      9/16   0   1   4   9
│  ├─ a     1      0      6/8    0   1   3   6
│  └─ b     1      0      3/8    0   0   1   3
├─ r1       3      0      6/8    0   1   3   6
│  ├─ c     1      0      6/8    0   1   3   6
│  ├─ e     1      0      0/0    0   0   0   0
│  └─ f     1      0      0/0    0   0   0   0
├─ control  1      0      0/0    0   0   0   0
└─ d        1      1      8/8    1   2   4   8  cordoned
`
	if diff := cmp.Diff(want, strings.Split(got.String(), "\n\n")[0]+"\n"); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
	for _, problem := range []string{
		`node "d": level "rack": no label topology.kubernetes.io/rack`, `node "e": its graph is of an earlier node of the name`, `node "f": its graph is stale`,
	} {
		if !strings.Contains(got.String(), "Problem  "+problem) {
			t.Errorf("%s is not said:\n%s", problem, got.String())
		}
	}
}

// TestFabricShowByNumber: no more GPUs are free than kubelet's number leaves, and the pod that holds a
// lost one is named.
func TestFabricShowByNumber(t *testing.T) {
	w := liveWorld(t, map[string]map[string]string{"a": {}})
	holds := testobj.Pod("holds").Node("a").GPUs(2).Obj()
	text, err := (&allocation.Allocation{
		Version: allocation.Version, PodUID: holds.UID, Node: "a",
		Containers: []allocation.Container{{Name: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{gpuOf(w, 0, 0), "GPU-replaced"}}},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	holds.Annotations[allocation.Key] = text
	w.Pods = []v1.Pod{*holds}
	con, err := (&pickOptions{policy: "best-effort"}).constraint(false)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := liveFabric(w, v1alpha1.DefaultResource).view(con).drawText(&got, true); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(got.String()), " ")
	for _, want := range []string{"a 1 0 6/8 0 1 3 6", `Problem node "a": default/holds holds 1 GPU that is no longer part of the node`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, got.String())
		}
	}
}

// TestFabricShowReads: fabric show reads all its input from an API server.
func TestFabricShowReads(t *testing.T) {
	c := newFakeCluster(t, "n0 l=s0\nn1 l=s1\nn2 c=core l=s1")
	c.lists["/apis/topology.nvtopo.dev/v1alpha1/clustertopologies"] = listOf(v1alpha1.SchemeGroupVersion.String(), "ClusterTopologyList", spineObject)
	c.lists["/api/v1/pods"] = `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}`
	c.lists["/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases"] = `{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","metadata":{},"items":[]}`
	got := mustRun(t, "", "fabric", "show", "--kubeconfig", c.config)
	for _, want := range []string{"cluster                3 ", "├─ core                1 ", "│  └─ s1               1", "└─ 2 in none of these  2\n", `Problem  node "n0": level "core": no domain`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	preview := mustRun(t, sampleTopology, "fabric", "show", "--kubeconfig", c.config, "--topology", "-")
	if !strings.Contains(preview, "Link     switch   12.5 GB/s") {
		t.Errorf("the preview:\n%s", preview)
	}
	c.lists["/api/v1/pods"] = ""
	if _, err := run(t, "", "fabric", "show", "--kubeconfig", c.config); ExitCode(err) != ExitInput || !strings.Contains(err.Error(), "list pods") {
		t.Errorf("without pods: %v", err)
	}
}
