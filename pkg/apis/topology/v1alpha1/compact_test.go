// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// TestShortFormRoundTrip: every machine is the same in short: of each machine of the catalogue both
// forms have the same graph, one becomes the other, and the short one is a quarter smaller.
func TestShortFormRoundTrip(t *testing.T) {
	for _, name := range machine.Names() {
		t.Run(name, func(t *testing.T) {
			m, err := machine.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			g, err := m.GraphFor("n")
			if err != nil {
				t.Fatal(err)
			}
			long, short := FromGraph("n", "", g), FromGraph("n", "", g)
			short.Spec.Compact()
			if len(short.Spec.Links) > 0 || len(short.Spec.LinkRows) != g.Len()-1 || short.Spec.Pairs() != len(long.Spec.Links) {
				t.Errorf("%d links, %d rows, %d pairs", len(short.Spec.Links), len(short.Spec.LinkRows), short.Spec.Pairs())
			}
			if got := throughJSON(t, short); !cmp.Equal(g, got, cmp.AllowUnexported(nvtopo.Graph{})) {
				t.Errorf("another graph (-want,+got):\n%s", cmp.Diff(g, got, cmp.AllowUnexported(nvtopo.Graph{})))
			}
			again := short.DeepCopy()
			again.Spec.Expand()
			if diff := cmp.Diff(long, again); diff != "" {
				t.Errorf("at length again (-want,+got):\n%s", diff)
			}
			if l, s := size(t, long.Spec), size(t, short.Spec); g.Len() >= 8 && 4*s > 3*l {
				t.Errorf("%d bytes of %d are left", s, l)
			}
		})
	}
}

// throughJSON reads the object's only graph as written.
func throughJSON(t *testing.T, obj *NodeGPUTopology) *nvtopo.Graph {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var again NodeGPUTopology
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	graphs, err := again.Graphs()
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, g := range graphs {
		return g
	}
	t.Fatalf("no graph in %s", data)
	return nil
}

func size(t *testing.T, v any) int {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// TestShortFormDocs holds the form to what docs/exporter.md shows.
func TestShortFormDocs(t *testing.T) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	obj := FromGraph("n", "", g)
	obj.Spec.Compact()
	text, err := yaml.Marshal(map[string]any{"linkKinds": obj.Spec.LinkKinds, "linkRows": obj.Spec.LinkRows, "numaNodes": obj.Spec.NUMANodes})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "dgx1-v100-compact.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

// twoResources has GPUs of two resources, not in the order of their indices.
func twoResources() *NodeGPUTopology {
	return &NodeGPUTopology{Spec: NodeGPUTopologySpec{
		GPUs: []GPU{
			{ID: "n7", Index: 7, NUMANode: -1},
			{ID: "x3", Index: 3, NUMANode: -1, Resource: "example.com/npu"},
			{ID: "n1", Index: 1, NUMANode: -1},
			{ID: "x2", Index: 2, NUMANode: -1, Resource: "example.com/npu"},
			{ID: "n4", Index: 4, NUMANode: -1},
		},
		NUMANodes: []NUMANode{},
		Links: []Link{
			{A: 1, B: 7, Class: "PIX", Bandwidth: resource.MustParse("24G")},
			{A: 2, B: 3, Class: "HCCS", Lanes: 1, Bandwidth: resource.MustParse("30G")},
			{A: 1, B: 4, Class: "PIX", Bandwidth: resource.MustParse("12G")},
			{A: 4, B: 7, Class: "NVLink", Lanes: 2, PCIe: "PIX", Bandwidth: resource.MustParse("50G"), LatencyNanoseconds: 900, Switched: true},
		},
	}}
}

// TestRowOrder: rows follow the order of the GPUs.
func TestRowOrder(t *testing.T) {
	long, short := twoResources(), twoResources()
	short.Spec.Compact()
	want := []string{"- PIX - NV2/PIX", "- HCCS1 -", "- PIX.2", "-"}
	if diff := cmp.Diff(want, short.Spec.LinkRows); diff != "" {
		t.Errorf("rows (-want,+got):\n%s", diff)
	}
	a, err := long.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	b, err := short.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
		t.Errorf("graphs (-at length,+in short):\n%s", diff)
	}
}

// TestShortFormFallback: a graph that cannot be said in the short form stays as it is.
func TestShortFormFallback(t *testing.T) {
	for name, spoil := range map[string]func(*NodeGPUTopologySpec){
		"a pair without a link":      func(s *NodeGPUTopologySpec) { s.Links = s.Links[1:] },
		"a pair with two":            func(s *NodeGPUTopologySpec) { s.Links = append(s.Links, s.Links[0]) },
		"a link between resources":   func(s *NodeGPUTopologySpec) { s.Links = append(s.Links, Link{A: 1, B: 2}) },
		"a link to a GPU nobody has": func(s *NodeGPUTopologySpec) { s.Links = append(s.Links, Link{A: 1, B: 9}) },
		"links and no GPUs":          func(s *NodeGPUTopologySpec) { s.GPUs = nil },
		"no links at all":            func(s *NodeGPUTopologySpec) { s.Links = nil },
		"more kinds than are read": func(s *NodeGPUTopologySpec) {
			*s = manyGPUs(13)
			for a := range int32(13) {
				for b := a + 1; b < 13; b++ {
					s.Links = append(s.Links, Link{A: a, B: b, Class: "SYS", Bandwidth: resource.MustParse(fmt.Sprintf("%dM", 1000+13*a+b))})
				}
			}
		},
		"cores that are counted unevenly": func(s *NodeGPUTopologySpec) {
			s.Links = nil
			s.NUMANodes = []NUMANode{{CPUs: "0-3", Siblings: []string{"0-1", "2-3"}}, {ID: 1, CPUs: "4-6", Siblings: []string{"4,6", "5"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := twoResources()
			spoil(&obj.Spec)
			want := obj.DeepCopy()
			obj.Spec.Compact()
			if diff := cmp.Diff(want, obj); diff != "" {
				t.Errorf("(-before,+after):\n%s", diff)
			}
		})
	}
}

// TestMalformedShortForms: malformed short forms are refused by field.
func TestMalformedShortForms(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*NodeGPUTopologySpec)
		want  string
	}{
		"a row too few":             {func(s *NodeGPUTopologySpec) { s.LinkRows = s.LinkRows[:2] }, "spec.linkRows: 2 rows for 4 gpus"},
		"a row too many":            {func(s *NodeGPUTopologySpec) { s.LinkRows = append(s.LinkRows, "SYS") }, "spec.linkRows: 4 rows for 4 gpus"},
		"a path too few":            {func(s *NodeGPUTopologySpec) { s.LinkRows[0] = "SYS SYS" }, "spec.linkRows[0]: 2 paths for the 3 GPUs"},
		"a path too many":           {func(s *NodeGPUTopologySpec) { s.LinkRows[1] = "SYS SYS SYS" }, "spec.linkRows[1]: more than the 2 paths"},
		"an empty row":              {func(s *NodeGPUTopologySpec) { s.LinkRows[2] = "" }, "spec.linkRows[2]: 0 paths for the 1 GPUs"},
		"a kind nobody has":         {func(s *NodeGPUTopologySpec) { s.LinkRows[2] = "NV9" }, `spec.linkRows[2]: "NV9" is none of linkKinds`},
		"no path within a resource": {func(s *NodeGPUTopologySpec) { s.LinkRows[2] = "-" }, `spec.linkRows[2]: "-" is none of linkKinds`},
		"a path between resources": {
			func(s *NodeGPUTopologySpec) { s.GPUs[3].Resource = "amd.com/gpu" }, "spec.linkRows[0]: GPUs 0 and 5 are of different resources",
		},
		"links besides": {
			func(s *NodeGPUTopologySpec) {
				s.Links = []Link{{A: 0, B: 1, Class: "SYS", Bandwidth: resource.MustParse("1G")}}
			}, "spec.linkRows: links say the same",
		},
		"two kinds of one name":      {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Name = s.LinkKinds[0].Name }, "spec.linkKinds[1].name"},
		"a kind without a name":      {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Name = "" }, "spec.linkKinds[1].name"},
		"a kind named as none":       {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Name = "-" }, "spec.linkKinds[1].name"},
		"an unknown class":           {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Class = "FAST" }, "spec.linkKinds[1].class"},
		"a fabric without lanes":     {func(s *NodeGPUTopologySpec) { s.LinkKinds[0].Lanes = 0 }, "spec.linkKinds[0].class"},
		"no bandwidth":               {func(s *NodeGPUTopologySpec) { s.LinkKinds[0].Bandwidth = resource.Quantity{} }, "spec.linkKinds[0].bandwidth"},
		"more kinds than are read":   {func(s *NodeGPUTopologySpec) { s.LinkKinds = make([]LinkKind, 65) }, "spec.linkKinds: 65 entries"},
		"10 000 rows":                {func(s *NodeGPUTopologySpec) { s.LinkRows = make([]string, 10_000) }, "spec.linkRows: 10000 entries"},
		"threads that do not divide": {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].ThreadsPerCore = 3 }, "spec.numaNodes[0].threadsPerCore"},
		"negative threads":           {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].ThreadsPerCore = -1 }, "spec.numaNodes[0].threadsPerCore"},
		"threads without CPUs":       {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].CPUs = "" }, "spec.numaNodes[0].threadsPerCore"},
		"more threads than a core has": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes[0].CPUs, s.NUMANodes[0].ThreadsPerCore = "0-64", 65 }, "spec.numaNodes[0].threadsPerCore",
		},
		"threads beside siblings": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Siblings = []string{"0,4"} }, "spec.numaNodes[0].threadsPerCore",
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := FromGraph("node-1", "", fourGPUs(t))
			obj.Spec.Compact()
			if len(obj.Spec.LinkRows) != 3 || obj.Spec.NUMANodes[0].ThreadsPerCore != 2 {
				t.Fatalf("%q and %d threads, want 3 rows and 2", obj.Spec.LinkRows, obj.Spec.NUMANodes[0].ThreadsPerCore)
			}
			tc.spoil(&obj.Spec)
			_, err := obj.Graphs()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `NodeGPUTopology "node-1"`) {
				t.Errorf("got %v, want the object's name and %q", err, tc.want)
			}
		})
	}
}
