// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestMachineLists: machine lists are read.
func TestMachineLists(t *testing.T) {
	nodes, err := ReadNodes([]byte("# a cluster\n\n  dgx1-v100 2 # the old ones\r\nl40s-8\t1\ndgx1-v100 1"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	classes := map[string]bool{}
	for _, n := range nodes {
		names = append(names, n.Name)
		classes[n.Graph.ClassKey()] = true
	}
	if diff := cmp.Diff([]string{"dgx1-v100-0", "dgx1-v100-1", "l40s-8-2", "dgx1-v100-3"}, names); diff != "" {
		t.Errorf("names (-want,+got):\n%s", diff)
	}
	if len(classes) != 2 || nodes[0].Graph != nodes[3].Graph {
		t.Errorf("%d classes of graphs, want 2 and one graph for one machine", len(classes))
	}
}

// objectList is a list as the API server gives it, of two machines, the second
// with a GPU lost.
func objectList(tb testing.TB) *v1alpha1.NodeGPUTopologyList {
	tb.Helper()
	list := &v1alpha1.NodeGPUTopologyList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind + "List"},
	}
	for i, n := range clusterOf(tb, bridged, "dgx1-v100") {
		if i == 1 {
			n.Graph.GPUs[3].Unhealthy = "lost"
		}
		obj := v1alpha1.FromGraph([]string{"gpu-a", "gpu-b"}[i], "", n.Graph)
		obj.Spec.NodeUID = "uid"
		list.Items = append(list.Items, *obj)
	}
	return list
}

// TestObjectLists: object lists are read.
func TestObjectLists(t *testing.T) {
	list := objectList(t)
	asJSON, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	list.APIVersion, list.Kind = "v1", "List" // as kubectl prints it
	asYAML, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	one, err := yaml.Marshal(list.Items[1])
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Name    string
		Healthy uint64
	}
	both := []node{{"gpu-a", 0b1111}, {"gpu-b", 0b1111_0111}}
	cases := map[string]struct {
		data []byte
		want []node
	}{
		"a list in JSON":                 {asJSON, both},
		"kubectl's list in YAML":         {asYAML, both},
		"one object, after a separator":  {append([]byte("---\n"), one...), both[1:]},
		"a list in JSON, with a newline": {append([]byte("\n"), asJSON...), both},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nodes, err := ReadNodes(tc.data)
			if err != nil {
				t.Fatal(err)
			}
			var got []node
			for _, n := range nodes {
				got = append(got, node{n.Name, uint64(n.Graph.Healthy())})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestNodesFileErrors: bad nodes files are refused with their place.
func TestNodesFileErrors(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"nothing":              {"", "no nodes"},
		"comments only":        {"# none\n\n", "no nodes"},
		"an unknown machine":   {"dgx1-v100 1\nabacus 3\n", `line 2: no machine "abacus"; the catalogue has`},
		"no count":             {"\ndgx1-v100\n", "line 2: 1 words"},
		"too much":             {"dgx1-v100 1 2\n", "line 1: 3 words"},
		"a count in words":     {"dgx1-v100 two\n", `line 1: count "two"`},
		"a count of none":      {"dgx1-v100 0\n", `line 1: count "0"`},
		"more than a cluster":  {"dgx1-v100 60000\ndgx1-v100 60000\n", "line 2: more than 100000 nodes"},
		"a line without end":   {"dgx1-v100 1\n" + strings.Repeat("x", 1<<17), "line 2"},
		"another kind":         {"apiVersion: v1\nkind: NodeList\nitems: []\n", `kind "NodeList" of apiVersion "v1"`},
		"another version":      {`{"apiVersion":"topology.nvtopo.dev/v9","kind":"NodeGPUTopologyList"}`, `apiVersion "topology.nvtopo.dev/v9"`},
		"an empty list":        {`{"apiVersion":"v1","kind":"List","items":[]}`, "0 items"},
		"a misspelt field":     {`{"apiVersion":"v1","kind":"List","itmes":[]}`, "itmes: there is no such field"},
		"an item of no GPUs":   {`{"apiVersion":"v1","kind":"List","items":[{"metadata":{"name":"a"},"spec":{}}]}`, `items[0] ("a"): no GPUs`},
		"an item of a kind":    {`{"apiVersion":"v1","kind":"List","items":[{"kind":"Node","metadata":{"name":"a"}}]}`, `items[0] ("a"): kind "Node"`},
		"two documents":        {"kind: List\napiVersion: v1\n---\nkind: List\napiVersion: v1\n", "2 YAML documents"},
		"YAML that is none":    {"kind: [\n", "not YAML"},
		"JSON that is cut off": {`{"kind":`, "unexpected end"},
		"none of its resources": {
			`{"apiVersion":"v1","kind":"List","items":[{"spec":{"numaNodes":[],"gpus":[` +
				`{"id":"a","index":0,"numaNode":-1,"resource":"x.com/a"},{"id":"b","index":1,"numaNode":-1,"resource":"x.com/b"}],"linkRows":["-"]}}]}`,
			"resources x.com/a, x.com/b, none of them nvidia.com/gpu",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ReadNodes([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q (%d nodes)", err, tc.want, len(got))
			}
		})
	}
}

// FuzzReadNodes: whatever is accepted is a cluster that a replay can use.
func FuzzReadNodes(f *testing.F) {
	f.Add([]byte("dgx1-v100 2\n# c\nl40s-8 1\n"))
	data, err := json.Marshal(objectList(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- metadata: {name: a}\n  spec: {gpus: [{id: a, index: 0, numaNode: -1}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		nodes, err := ReadNodes(data)
		if err != nil {
			return
		}
		if len(nodes) == 0 || len(nodes) > maxNodes {
			t.Fatalf("%d nodes", len(nodes))
		}
		for i := range min(len(nodes), 4) {
			// Large graphs of any shape take their time; the replay of those is tested elsewhere.
			if nodes[i].Graph.Len() > 8 {
				return
			}
		}
		r, err := Run(t.Context(), Config{Nodes: nodes[:min(len(nodes), 4)], Jobs: jobs([4]float64{0, 1, 1, 1}, [4]float64{1, 1, 2, 1}), Policy: Ours})
		if err != nil {
			t.Fatal(err)
		}
		if r.Pods+r.Unplaceable != 2 || r.Unfinished != 0 {
			t.Errorf("%d pods replayed, %d unplaceable, %d unfinished, want 2 in all", r.Pods, r.Unplaceable, r.Unfinished)
		}
	})
}
