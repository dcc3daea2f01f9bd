// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// TestCatalogueRoundTrip: every machine of the catalogue is the same graph after it was written
// and read, and has its links in rows.
func TestCatalogueRoundTrip(t *testing.T) {
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
			obj := FromGraph("n", "", g)
			if len(obj.Spec.LinkRows) != g.Len()-1 || len(obj.Spec.LinkKinds) > 7 {
				t.Errorf("%d rows and %d kinds of %d GPUs", len(obj.Spec.LinkRows), len(obj.Spec.LinkKinds), g.Len())
			}
			if got := throughJSON(t, obj); !cmp.Equal(g, got, cmp.AllowUnexported(nvtopo.Graph{})) {
				t.Errorf("another graph (-want,+got):\n%s", cmp.Diff(g, got, cmp.AllowUnexported(nvtopo.Graph{})))
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

// TestDocumentedRows holds the form to what docs/exporter.md shows.
func TestDocumentedRows(t *testing.T) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	obj := FromGraph("n", "", g)
	text, err := yaml.Marshal(map[string]any{"linkKinds": obj.Spec.LinkKinds, "linkRows": obj.Spec.LinkRows, "numaNodes": obj.Spec.NUMANodes})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "dgx1-v100.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

// TestRowOrder: rows follow the order of the GPUs, whatever their indices and resources are.
func TestRowOrder(t *testing.T) {
	obj := &NodeGPUTopology{Spec: NodeGPUTopologySpec{
		GPUs: []GPU{
			{ID: "n7", Index: 7, NUMANode: -1},
			{ID: "x3", Index: 3, NUMANode: -1, Resource: "example.com/npu"},
			{ID: "n1", Index: 1, NUMANode: -1},
			{ID: "x2", Index: 2, NUMANode: -1, Resource: "example.com/npu"},
			{ID: "n4", Index: 4, NUMANode: -1},
		},
		LinkKinds: []LinkKind{
			{Name: "PIX", Class: "PIX", Bandwidth: resource.MustParse("24G")},
			{Name: "NV2/PIX", Class: "NVLink", Lanes: 2, PCIe: "PIX", Bandwidth: resource.MustParse("50G"), LatencyNanoseconds: 900, Switched: true},
			{Name: "HCCS1", Class: "HCCS", Lanes: 1, Bandwidth: resource.MustParse("30G")},
			{Name: "PIX.2", Class: "PIX", Bandwidth: resource.MustParse("12G")},
		},
		LinkRows: []string{"- PIX - NV2/PIX", "- HCCS1 -", "- PIX.2", "-"},
	}}
	graphs, err := obj.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, g := range graphs {
		for i := range g.Len() {
			for j := range i {
				l := g.Link(i, j)
				got[g.GPUs[j].UUID+" "+g.GPUs[i].UUID] = fmt.Sprintf("%s %d %d %t", l.Class, l.Bandwidth, l.Latency, l.Switched)
			}
		}
	}
	want := map[string]string{
		"n1 n4": "PIX 12000000 3000 false", "n1 n7": "PIX 24000000 3000 false", "n4 n7": "NV2 50000000 900 true", "x2 x3": "HCCS1 30000000 1000 false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("links (-want,+got):\n%s", diff)
	}
}

// TestCores: the cores of a NUMA node are a number where they count evenly, and lists otherwise.
func TestCores(t *testing.T) {
	for name, tc := range map[string]struct {
		node         nvtopo.NUMANode
		wantThreads  int32
		wantSiblings []string
	}{
		"runs of equal length": {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(0, 1, 4, 5), Siblings: []nvtopo.CPUSet{{0, 4}, {1, 5}}}, 2, nil},
		"one thread each":      {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(0, 1), Siblings: []nvtopo.CPUSet{{0}, {1}}}, 1, nil},
		"neighbours":           {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(0, 1, 2, 3), Siblings: []nvtopo.CPUSet{{0, 1}, {2, 3}}}, 0, []string{"0-1", "2-3"}},
		"a thread is offline":  {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(4, 5, 6), Siblings: []nvtopo.CPUSet{{4, 6}, {5}}}, 0, []string{"4,6", "5"}},
		"another order":        {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(0, 1, 4, 5), Siblings: []nvtopo.CPUSet{{1, 5}, {0, 4}}}, 0, []string{"1,5", "0,4"}},
		"not known":            {nvtopo.NUMANode{CPUs: nvtopo.NewCPUSet(0, 1)}, 0, nil},
		"no CPUs":              {nvtopo.NUMANode{Memory: 1 << 30}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := nvtopo.NewGraph([]nvtopo.GPU{{UUID: "GPU-0"}}, []nvtopo.NUMANode{tc.node}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			obj := FromGraph("n", "", g)
			if n := obj.Spec.NUMANodes[0]; n.ThreadsPerCore != tc.wantThreads || !slices.Equal(n.Siblings, tc.wantSiblings) {
				t.Errorf("%d threads and siblings %q, want %d and %q", n.ThreadsPerCore, n.Siblings, tc.wantThreads, tc.wantSiblings)
			}
			if diff := cmp.Diff(g, throughJSON(t, obj), cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
				t.Errorf("another graph (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestMalformedRows: malformed rows, kinds and cores are refused by field.
func TestMalformedRows(t *testing.T) {
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
		"no rows at all":             {func(s *NodeGPUTopologySpec) { s.LinkRows = nil }, "spec.linkRows: 0 rows for 4 gpus"},
		"a row of a single GPU":      {func(s *NodeGPUTopologySpec) { s.GPUs = s.GPUs[:1] }, "spec.linkRows: 3 rows for 1 gpus"},
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
