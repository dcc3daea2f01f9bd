// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

func topologyOf(tb testing.TB, spec string) *v1alpha1.ClusterTopology {
	tb.Helper()
	ct := &v1alpha1.ClusterTopology{}
	if err := yaml.UnmarshalStrict([]byte(spec), &ct.Spec); err != nil {
		tb.Fatal(err)
	}
	ct.Name, ct.Generation = v1alpha1.ClusterTopologyName, 7
	return ct
}

// nodesOf reads lines of a name and labels; "-" in front of a name is a node without GPUs.
func nodesOf(text string) (out []Node) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		n := Node{Labels: map[string]string{}}
		n.Name, n.NoGPUs = strings.CutPrefix(fields[0], "-")
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f, "=")
			n.Labels[k] = v
		}
		out = append(out, n)
	}
	return out
}

// drawn returns a tree as text: the path and the node, in order.
func drawn(t *fabric.Tree) (out []string) {
	for n := range t.Len() {
		path := ""
		if d := t.Depth(); d > 0 {
			path = t.Domains(d)[t.DomainOf(d, n)].Path
		}
		out = append(out, path+":"+t.Name(n))
	}
	return out
}

const twoLevels = `
levels:
- {name: spine, nodeLabel: example.com/spine, bandwidthGBps: 50, latencyMicros: "1.5", hops: 3}
- {name: rack, nodeLabel: rack}
root: {bandwidthGBps: "12.5"}
`

func TestTree(t *testing.T) {
	cases := map[string]struct {
		topology     string // "" is none
		nodes        string
		wantNodes    []string
		wantProblems []string
	}{
		"two levels; rack names repeat": {
			topology: twoLevels, nodes: "a example.com/spine=s0 rack=r0\nb example.com/spine=s1 rack=r0\nc example.com/spine=s0 rack=r0",
			wantNodes: []string{"s0/r0:a", "s0/r0:c", "s1/r0:b"},
		},
		"labels that are missing": {
			topology: twoLevels, nodes: "a example.com/spine=s0\nb\n-c\nd example.com/spine=s0 rack=",
			wantNodes: []string{":a", ":d", ":b", ":c"},
			wantProblems: []string{
				`LabelsMissing: node "a": level "rack": no label rack`, `LabelsMissing: node "b": level "spine": no label example.com/spine`,
				`LabelsMissing: node "d": level "rack": no label rack`,
			},
		},
		"a rack in no spine": {
			topology: twoLevels, nodes: "a rack=r0\n-b rack=r0", wantNodes: []string{":a", ":b"},
			wantProblems: []string{
				`NotATree: node "a": level "spine": no domain, but it is in rack "r0"; it counts as alone`,
				`NotATree: node "b": level "spine": no domain, but it is in rack "r0"; it counts as alone`,
			},
		},
		"an exclusion and an override of nobody": {
			topology: twoLevels + "excluded: [{level: rack, domain: r9}]\noverrides: [{level: spine, a: s0, b: s7, bandwidthGBps: 1, latencyMicros: 1}]",
			nodes:    "a example.com/spine=s0 rack=r0", wantNodes: []string{"s0/r0:a"},
			wantProblems: []string{`UnknownDomain: level "rack": no node is in domain "r9"`, `UnknownDomain: level "spine": no node is in domain "s7"`},
		},
		"no levels": {topology: "levels: []", nodes: "b rack=r0\na", wantNodes: []string{":a", ":b"}},
		"levels that are none": {
			topology: "levels: [{name: cluster, nodeLabel: a/b/c}]", nodes: "a a/b/c=x", wantNodes: []string{":a"},
			wantProblems: []string{
				`Invalid: spec.levels[0].nodeLabel: "a/b/c": a valid label key must consist`, `Invalid: level "cluster": every fabric has a level of this name`,
			},
		},
		"links that are none": {
			topology: "levels: [{name: rack, nodeLabel: rack, bandwidthGBps: 100G, latencyMicros: -1}]", nodes: "a rack=r", wantNodes: []string{"r:a"},
			wantProblems: []string{`Invalid: spec.levels[0].bandwidthGBps: "100G": want a number of GB/s without a unit: write 100 for 100GB/s, or "12.5" for 100Gb/s`, `Invalid: spec.levels[0].latencyMicros: "-1": want a number of at most`},
		},
		"none, and no labels": {nodes: "a\nb rack=r", wantNodes: []string{":a", ":b"}},
		"none, and zones": {
			nodes: "a topology.kubernetes.io/zone=z\nb", wantNodes: []string{"z:a", ":b"},
			wantProblems: []string{`LabelsMissing: node "b": level "zone": no label topology.kubernetes.io/zone`},
		},
		"none, and racks behind switches": {
			nodes:     "a topology.kubernetes.io/switch=s topology.kubernetes.io/rack=r0\nb topology.kubernetes.io/switch=s topology.kubernetes.io/rack=r1",
			wantNodes: []string{"s/r0:a", "s/r1:b"},
		},
		"none, and switches in racks": {
			nodes:     "a topology.kubernetes.io/switch=s0 topology.kubernetes.io/rack=r\nb topology.kubernetes.io/switch=s1 topology.kubernetes.io/rack=r",
			wantNodes: []string{"r/s0:a", "r/s1:b"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var ct *v1alpha1.ClusterTopology
			if tc.topology != "" {
				ct = topologyOf(t, tc.topology)
			}
			tree, problems := Tree(ct, nodesOf(tc.nodes))
			if diff := cmp.Diff(tc.wantNodes, drawn(tree)); diff != "" {
				t.Errorf("nodes (-want,+got):\n%s", diff)
			}
			if len(problems) != len(tc.wantProblems) {
				t.Errorf("problems %v, want %q", problems, tc.wantProblems)
			}
			for i := range min(len(problems), len(tc.wantProblems)) {
				if got := fmt.Sprintf("%s: %s", problems[i].Kind, &problems[i]); !strings.HasPrefix(got, tc.wantProblems[i]) {
					t.Errorf("problem %s, want %s", got, tc.wantProblems[i])
				}
			}
		})
	}
}

func TestLinks(t *testing.T) {
	tree, problems := Tree(topologyOf(t, twoLevels+"overrides: [{level: spine, a: s0, b: s2, bandwidthGBps: '0.000001', latencyMicros: '0.001', hops: 9}]"), nodesOf(
		"a example.com/spine=s0 rack=r0\nb example.com/spine=s0 rack=r0\nc example.com/spine=s0 rack=r1\nd example.com/spine=s1 rack=r0\ne example.com/spine=s2 rack=r0"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for pair, want := range map[string]fabric.Link{
		"a b": {Bandwidth: 100_000_000, Latency: 100_000, Hops: 1, Assumed: true}, // the rule of thumb
		"a c": {Bandwidth: 50_000_000, Latency: 1500, Hops: 3},
		"a d": {Bandwidth: 12_500_000, Latency: 500_000, Hops: 3, Assumed: true},
		"c e": {Bandwidth: 1, Latency: 1, Hops: 9},
	} {
		x, y, _ := strings.Cut(pair, " ")
		i, _ := tree.Node(x)
		j, _ := tree.Node(y)
		if got := tree.Between(i, j); got != want {
			t.Errorf("%s: %+v, want %+v", pair, got, want)
		}
	}
}

// TestNodeBandwidths: the first bandwidth that applies to a node is used, and one that cannot be read is
// ignored.
func TestNodeBandwidths(t *testing.T) {
	ct := topologyOf(t, twoLevels+"nodeBandwidths: [{nodeLabel: type, value: slow, bandwidthGBps: '12.5'}, "+
		"{nodeLabel: type, value: odd, bandwidthGBps: 0}, {nodeLabel: rack, value: r0, bandwidthGBps: 400}]")
	spec, problems := Spec(ct, nodesOf("a rack=r0 type=slow\nb rack=r0\nc rack=r1\nd rack=r0 type=odd"))
	got := map[string]int64{}
	for _, n := range spec.Nodes {
		got[n.Node] = n.Bandwidth
	}
	if d := cmp.Diff(map[string]int64{"a": 12_500_000, "b": 400_000_000, "c": 0, "d": 400_000_000}, got); d != "" {
		t.Errorf("kB/s (-want, +got):\n%s", d)
	}
	if !slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Kind == Invalid && strings.HasPrefix(p.Text, "spec.nodeBandwidths[1].bandwidthGBps")
	}) {
		t.Errorf("problems %v", problems)
	}
	if keys := LabelKeys(ct); !slices.Contains(keys, "type") {
		t.Errorf("label keys %v", keys)
	}
}

func TestDecimal(t *testing.T) {
	for text, want := range map[string]int64{
		"50": 50_000_000, "12.5": 12_500_000, "0.000001": 1, "1000000": 1_000_000_000_000, "007": 7_000_000, "0": 0,
		"": -1, ".5": -1, "5.": -1, "-1": -1, "+1": -1, "1e3": -1, "1.0000001": -1, "12345678": -1, "1.5G": -1, "1.5.0": -1, "１": -1,
	} {
		got, ok := decimal(text, 6)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestSpecRoundTrip: a ClusterTopology is unchanged by JSON and by a deep copy.
func TestSpecRoundTrip(t *testing.T) {
	for _, p := range Presets() {
		ct := &v1alpha1.ClusterTopology{Spec: v1alpha1.ClusterTopologySpec{Levels: p.Levels, Excluded: []v1alpha1.ExcludedDomain{{Level: p.Levels[0].Name, Domain: "x"}}}}
		data, err := json.Marshal(ct)
		if err != nil {
			t.Fatal(err)
		}
		again := &v1alpha1.ClusterTopology{}
		if err := json.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ct, again); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", p.Name, diff)
		}
		again = ct.DeepCopy()
		again.Spec.Excluded[0].Domain, again.Spec.Levels[0].Name = "y", "y"
		if ct.Spec.Excluded[0].Domain != "x" || ct.Spec.Levels[0].Name == "y" {
			t.Errorf("%s: the copy shares lists", p.Name)
		}
	}
}

// TestTreeMembership: every node is in the tree. Over random labels, each node is in the tree once,
// two nodes share a domain exactly if they share the labels down to its level, and each node that
// is not in a domain of every level is a problem.
func TestTreeMembership(t *testing.T) {
	ct := topologyOf(t, twoLevels)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var nodes []Node
		for i := range rng.IntN(12) {
			n := Node{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}
			for _, key := range LabelKeys(ct) {
				if v := rng.IntN(4); v > 0 {
					n.Labels[key] = strconv.Itoa(v)
				}
			}
			nodes = append(nodes, n)
		}
		tree, problems := Tree(ct, nodes)
		if tree.Len() != len(nodes) {
			t.Fatalf("%d nodes of %d", tree.Len(), len(nodes))
		}
		at := map[string]bool{}
		for _, p := range problems {
			at[p.Node] = true
		}
		for _, a := range nodes {
			whole := a.Labels["example.com/spine"] != "" && a.Labels["rack"] != ""
			if at[a.Name] == whole {
				t.Fatalf("%v: problem %t", a, at[a.Name])
			}
			for _, b := range nodes {
				i, _ := tree.Node(a.Name)
				j, _ := tree.Node(b.Name)
				together := whole && a.Labels["example.com/spine"] == b.Labels["example.com/spine"] && a.Labels["rack"] == b.Labels["rack"]
				if got := tree.Common(i, j) >= 2; got != (together || i == j) {
					t.Fatalf("%v and %v in one rack: %t", a, b, got)
				}
			}
		}
	}
}

// FuzzTree reads any spec: the tree has all nodes, the status keeps within its bounds, and
// equal input gives an equal one.
// TestBandwidthsWithUnits: a bandwidth with a unit is refused with the number to write.
func TestBandwidthsWithUnits(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"bytes":                  {"100GB/s", "want a number of GB/s without a unit: write 100"},
		"bits":                   {"800Gb/s", "want a number of GB/s without a unit: write 100"},
		"bits that make a part":  {"100Gbps", `want a number of GB/s without a unit: write "12.5"`},
		"another prefix":         {"1.6TB/s", "want a number of GB/s without a unit: write 1600"},
		"a prefix alone":         {"100G", `want a number of GB/s without a unit: write 100 for 100GB/s, or "12.5" for 100Gb/s`},
		"words":                  {"fast", "want a number above 0 and at most 1000000, in GB/s"},
		"nothing":                {"0", "want a number above 0 and at most 1000000, in GB/s"},
		"too much":               {"4000000", "want a number above 0 and at most 1000000, in GB/s"},
		"more digits than there": {"1.2345678", "want a number above 0 and at most 1000000, in GB/s"},
	} {
		t.Run(name, func(t *testing.T) {
			ct := topologyOf(t, "levels: [{name: rack, nodeLabel: rack, bandwidthGBps: '"+tc.text+"', latencyMicros: 1}]")
			_, problems := Tree(ct, nodesOf("a rack=r"))
			want := fmt.Sprintf("spec.levels[0].bandwidthGBps: %q: %s", tc.text, tc.want)
			if len(problems) == 0 || problems[0].String() != want {
				t.Errorf("problems %v, want %s", problems, want)
			}
		})
	}
}

func FuzzTree(f *testing.F) {
	f.Add(twoLevels, "a example.com/spine=s0 rack=r0\nb rack=r0\nc")
	f.Add(twoLevels+"excluded: [{level: rack, domain: s0/r0, reason: x}]\noverrides: [{level: rack, a: a, b: a, bandwidthGBps: 7, latencyMicros: 1}]", "a rack=a")
	f.Add("levels: [{name: '', nodeLabel: ''}, {name: '', nodeLabel: ''}]\nroot: {bandwidthGBps: 9999999999, hops: -4}", "a\na =x")
	f.Fuzz(func(t *testing.T, spec, lines string) {
		ct := &v1alpha1.ClusterTopology{}
		if len(spec) > 1<<12 || len(lines) > 1<<12 || yaml.UnmarshalStrict([]byte(spec), &ct.Spec) != nil {
			return
		}
		nodes := nodesOf(lines)
		names := map[string]bool{}
		for _, n := range nodes {
			names[n.Name] = n.Name != ""
		}
		delete(names, "")
		tree, problems := Tree(ct, nodes)
		if tree.Len() != len(names) {
			t.Errorf("%d nodes of %d", tree.Len(), len(names))
		}
		again, _ := Tree(ct, nodes)
		if diff := cmp.Diff(drawn(tree), drawn(again)); diff != "" {
			t.Errorf("again it is another:\n%s", diff)
		}
		for i := range tree.Len() {
			for j := range i {
				if l := tree.Between(i, j); l.Bandwidth < 1 || l.Latency < 0 || l.Hops < 1 {
					t.Errorf("link %+v", l)
				}
			}
		}
		s := Status(ct, tree, problems)
		for _, c := range s.Conditions {
			if len(c.Message) > maxMessage || c.Message == "" || c.Reason == "" {
				t.Errorf("condition %+v", c)
			}
		}
	})
}
