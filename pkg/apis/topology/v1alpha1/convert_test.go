// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// fourGPUs is a two-socket machine with every field of a graph in use:
//
//	GPU0 --NV4-- GPU1 | GPU2 --NV4-- GPU5(unhealthy), PXB/SYS across
func fourGPUs(t *testing.T) *nvtopo.Graph {
	t.Helper()
	gpus := []nvtopo.GPU{
		{UUID: "GPU-a", Index: 0, PCIBusID: "0000:06:00.0", Model: "Model X", Memory: 80 << 30, NUMANode: 0, CPUs: nvtopo.NewCPUSet(0, 1, 4, 5)},
		{UUID: "GPU-b", Index: 1, Model: "Model X", NUMANode: 0, MIG: true, Slices: []nvtopo.Slice{{UUID: "MIG-1", Profile: "3g.40gb"}, {UUID: "MIG-2", Profile: "1g.10gb"}}},
		{UUID: "GPU-c", Index: 2, Model: "Model Y", NUMANode: 1},
		{UUID: "GPU-d", Index: 5, NUMANode: nvtopo.UnknownNUMA, Unhealthy: "GPU is lost"},
	}
	nodes := []nvtopo.NUMANode{
		{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 4, 5), Siblings: []nvtopo.CPUSet{{0, 4}, {1, 5}}, Memory: 1 << 38, Distances: []int{10, 21}},
		{ID: 1, CPUs: nvtopo.NewCPUSet(2, 3), Distances: []int{21, 10}},
	}
	nics := []nvtopo.NIC{{Name: "mlx5_0", NUMANode: 1, Levels: []nvtopo.PCIeLevel{nvtopo.PCIePIX, nvtopo.PCIeUnknown, nvtopo.PCIeSYS, nvtopo.PCIeSYS}}}
	fabric := nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 4}, nvtopo.PCIePXB, 4, 25_000_000, true)
	slow := nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIeSYS}, nvtopo.PCIeSYS, 4, 0, false)
	odd := slow
	odd.Bandwidth, odd.Latency = 14_062_501, 1234
	g, err := nvtopo.NewGraph(gpus, nodes, nics, map[[2]int]nvtopo.Link{
		{0, 1}: fabric, {2, 3}: fabric, {0, 2}: slow, {0, 3}: slow, {1, 2}: odd, {1, 3}: slow,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGraphJSONRoundTrip: a graph survives the round trip through JSON.
func TestGraphJSONRoundTrip(t *testing.T) {
	want := fourGPUs(t)
	data, err := json.Marshal(FromGraph("node-1", "", want))
	if err != nil {
		t.Fatal(err)
	}
	var obj NodeGPUTopology
	if err := json.Unmarshal(data, &obj); err != nil {
		t.Fatal(err)
	}
	graphs, err := obj.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	got := graphs[DefaultResource]
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
		t.Errorf("graph changed (-want,+got):\n%s", diff)
	}
	if want.ClassKey() != got.ClassKey() {
		t.Errorf("class key changed from %s to %s", want.ClassKey(), got.ClassKey())
	}
}

// TestFromGraph: FromGraph describes the node.
func TestFromGraph(t *testing.T) {
	obj := FromGraph("node-1", "", fourGPUs(t))
	if obj.APIVersion != "topology.nvtopo.dev/v1alpha1" || obj.Kind != "NodeGPUTopology" || obj.Name != "node-1" || obj.Spec.NodeUID != "" {
		t.Errorf("identity: %s %s %q nodeUID %q", obj.APIVersion, obj.Kind, obj.Name, obj.Spec.NodeUID)
	}
	// Healthy leaves out the MIG GPU and the lost one.
	if diff := cmp.Diff(&Summary{GPUs: 4, Healthy: 2, NUMANodes: 2, Interconnect: "NV4 pairs"}, obj.Status.Summary); diff != "" {
		t.Errorf("summary (-want,+got):\n%s", diff)
	}
	wantHealth := []GPUHealth{
		{ID: "GPU-a", Healthy: true},
		{ID: "GPU-b", Healthy: true},
		{ID: "GPU-c", Healthy: true},
		{ID: "GPU-d", Reason: "GPU is lost"},
	}
	if diff := cmp.Diff(wantHealth, obj.Status.GPUHealth); diff != "" {
		t.Errorf("health (-want,+got):\n%s", diff)
	}
	if got := obj.Spec.LinkKinds[0].Bandwidth.String(); got != "100G" {
		t.Errorf("bandwidth of the first kind: got %s, want 100G", got)
	}
	if got := FromGraph("n", "amd.com/gpu", fourGPUs(t)).Spec.GPUs[3].Resource; got != "amd.com/gpu" {
		t.Errorf("resource: got %s", got)
	}
}

// TestInterconnect: the summary tells which GPUs the best links join, within what the definition allows.
func TestInterconnect(t *testing.T) {
	want := map[string]string{
		"a100-pcie-4-bridged": "NV12 pairs", "a6000-8-bridged": "NV4 pairs", "power9-v100-4": "NV3 pairs",
		"h200-nvl-8": "NV6 groups of 4",
		"dgx-a100":   "NV12 all", "dgx-h100": "NV18 all", "dgx2": "NV6 all", "gb200-tray": "NV18 all", "hgx-a100-4": "NV4 all", "hgx-a100-8": "NV12 all",
		"hgx-b200": "NV18 all", "hgx-h200": "NV18 all", "atlas-800t-a2": "HCCS1 all",
		"dgx1-p100": "NV1 some", "dgx1-v100": "NV2 some", "mi250x-8": "XGMI4 some",
		"l40s-8": "PIX", "v100-pcie-8": "PIX", "rtx4090-8": "SYS",
	}
	got := map[string]string{}
	for _, name := range machine.Names() {
		m, err := machine.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Graph()
		if err != nil {
			t.Fatal(err)
		}
		got[name] = FromGraph(name, "", g).Status.Summary.Interconnect
		if len(got[name]) > 16 {
			t.Errorf("%s: %q is longer than the definition allows", name, got[name])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interconnect (-want,+got):\n%s", diff)
	}
}

// TestResourcePositions: positions follow the index within each resource.
func TestResourcePositions(t *testing.T) {
	obj := NodeGPUTopology{Spec: NodeGPUTopologySpec{
		GPUs: []GPU{
			{ID: "n7", Index: 7, NUMANode: -1},
			{ID: "x3", Index: 3, NUMANode: -1, Resource: "example.com/npu"},
			{ID: "n1", Index: 1, NUMANode: -1},
			{ID: "x2", Index: 2, NUMANode: -1, Resource: "example.com/npu"},
		},
		LinkKinds: []LinkKind{
			{Name: "PIX", Class: "PIX", Bandwidth: resource.MustParse("24G")},
			{Name: "HCCS1", Class: "HCCS", Lanes: 1, Bandwidth: resource.MustParse("30G")},
		},
		LinkRows: []string{"- PIX -", "- HCCS1", "-"},
		NICs:     []NIC{{Name: "mlx5_0", NUMANode: -1, Distances: []string{"PIX", "PXB", "PHB", ""}}},
	}}
	graphs, err := obj.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	type view struct {
		UUIDs  []string
		Levels []nvtopo.PCIeLevel
		Class  string
		NS     int64
	}
	got := map[string]view{}
	for res, g := range graphs {
		v := view{Levels: g.NICs[0].Levels, Class: g.Link(0, 1).Class.String(), NS: g.Link(0, 1).Latency}
		for i := range g.GPUs {
			v.UUIDs = append(v.UUIDs, g.GPUs[i].UUID)
		}
		got[res] = v
	}
	want := map[string]view{
		// Absent latencies are the constants of PIX (3 µs) and of a direct fabric (1 µs).
		DefaultResource:   {[]string{"n1", "n7"}, []nvtopo.PCIeLevel{nvtopo.PCIePHB, nvtopo.PCIePIX}, "PIX", 3000},
		"example.com/npu": {[]string{"x2", "x3"}, []nvtopo.PCIeLevel{nvtopo.PCIeUnknown, nvtopo.PCIePXB}, "HCCS1", 1000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("graphs (-want,+got):\n%s", diff)
	}
}

// TestDegradedHealth: a degraded GPU is healthy for readers that do not know "degraded".
func TestDegradedHealth(t *testing.T) {
	g := fourGPUs(t)
	g.GPUs[2].Degraded = "NVLink error: Xid 74"
	g.GPUs[3].Degraded = "whatever: it is lost" // unhealthy is worse
	obj := FromGraph("n", "", g)
	want := []GPUHealth{
		{ID: "GPU-a", Healthy: true},
		{ID: "GPU-b", Healthy: true},
		{ID: "GPU-c", Healthy: true, Degraded: true, Reason: "NVLink error: Xid 74"},
		{ID: "GPU-d", Reason: "GPU is lost"},
	}
	if diff := cmp.Diff(want, obj.Status.GPUHealth); diff != "" {
		t.Errorf("health (-want,+got):\n%s", diff)
	}
	if s := obj.Status.Summary; s.Healthy != 2 || s.Degraded != 1 {
		t.Errorf("summary says %d healthy, %d degraded; want 2 and 1", s.Healthy, s.Degraded)
	}
	obj.Status.GPUHealth[2].Reason = ""
	graphs, err := obj.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	back := graphs[DefaultResource]
	if got := back.GPUs[2].Degraded; got != "degraded" {
		t.Errorf("GPU-c came back degraded %q, want the word itself in place of a reason", got)
	}
	if back.Healthy() != nvtopo.MaskOf(0, 2) || back.Degraded() != nvtopo.MaskOf(2) {
		t.Errorf("healthy %v, degraded %v; want 0, 2 and 2", back.Healthy().Positions(), back.Degraded().Positions())
	}
	g.GPUs[2].Degraded = strings.Repeat("ü", 200)
	if r := FromGraph("n", "", g).Status.GPUHealth[2].Reason; len(r) > 256 || !utf8.ValidString(r) {
		t.Errorf("a reason of %d bytes, valid %t; the schema takes 256", len(r), utf8.ValidString(r))
	}
}

// TestControlCharacters: what a driver says has no control characters in an object, which the schema
// refuses.
func TestControlCharacters(t *testing.T) {
	g := fourGPUs(t)
	g.GPUs[0].Model, g.GPUs[3].Unhealthy = "H100\x00\x1b[2J", "GPU is lost:\r\n\u009bé"
	obj := FromGraph("n", "", g)
	if got, want := obj.Spec.GPUs[0].Model, "H100  [2J"; got != want {
		t.Errorf("model %q, want %q", got, want)
	}
	if got, want := obj.Status.GPUHealth[3].Reason, "GPU is lost:   é"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

// TestUnknownGPUHealth: the health of unknown GPUs is ignored, and an empty reason is named.
func TestUnknownGPUHealth(t *testing.T) {
	obj := FromGraph("n", "", fourGPUs(t))
	obj.Status.GPUHealth = []GPUHealth{{ID: "gone", Reason: "lost"}, {ID: "GPU-c"}}
	graphs, err := obj.Graphs()
	if err != nil {
		t.Fatal(err)
	}
	g := graphs[DefaultResource]
	if got := g.GPUs[2].Unhealthy; got != "unhealthy" {
		t.Errorf("GPU-c: got reason %q", got)
	}
	if got := g.GPUs[3].Unhealthy; got != "" {
		t.Errorf("GPU-d is not listed and should be healthy, got %q", got)
	}
}

// TestMalformedObjects: malformed objects are refused by field.
func TestMalformedObjects(t *testing.T) {
	cases := map[string]struct {
		breakIt func(*NodeGPUTopologySpec)
		want    string
	}{
		"two GPUs with one id":              {func(s *NodeGPUTopologySpec) { s.GPUs[1].ID = "GPU-a" }, "spec.gpus[1].id"},
		"a GPU without an id":               {func(s *NodeGPUTopologySpec) { s.GPUs[0].ID = "" }, "spec.gpus[0].id"},
		"two GPUs with one index":           {func(s *NodeGPUTopologySpec) { s.GPUs[2].Index = 1 }, "spec.gpus[2].index"},
		"a GPU on a NUMA node nobody has":   {func(s *NodeGPUTopologySpec) { s.GPUs[2].NUMANode = 7 }, "spec.gpus[2].numaNode"},
		"a GPU with a bad CPU list":         {func(s *NodeGPUTopologySpec) { s.GPUs[0].CPUs = "3-1" }, "spec.gpus[0].cpus"},
		"two NUMA nodes with one id":        {func(s *NodeGPUTopologySpec) { s.NUMANodes[1].ID = 0 }, "spec.numaNodes[1].id"},
		"a NUMA node with a bad CPU list":   {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].CPUs = "x" }, "spec.numaNodes[0].cpus"},
		"a NUMA node with bad siblings":     {func(s *NodeGPUTopologySpec) { s.NUMANodes[1].Siblings = []string{"2", "x"} }, "spec.numaNodes[1].siblings[1]"},
		"a NUMA node with a short SLIT row": {func(s *NodeGPUTopologySpec) { s.NUMANodes[1].Distances = []int32{10} }, "spec.numaNodes[1].distances"},
		"a fabric without lanes":            {func(s *NodeGPUTopologySpec) { s.LinkKinds[0].Lanes = 0 }, "spec.linkKinds[0].class: NVLink needs lanes"},
		"an unknown class":                  {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Class = "NV4" }, "spec.linkKinds[1].class"},
		"a PCIe path with lanes":            {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].Lanes = 2 }, "spec.linkKinds[1].class: SYS is a PCIe path"},
		"a PCIe level against the class":    {func(s *NodeGPUTopologySpec) { s.LinkKinds[1].PCIe = "PIX" }, "spec.linkKinds[1].pcie: PIX contradicts class SYS"},
		"an unknown PCIe level":             {func(s *NodeGPUTopologySpec) { s.LinkKinds[0].PCIe = "PXX" }, "spec.linkKinds[0].pcie"},
		"a link without bandwidth":          {func(s *NodeGPUTopologySpec) { s.LinkKinds[2].Bandwidth = resource.Quantity{} }, "spec.linkKinds[2].bandwidth"},
		"a link of absurd bandwidth":        {func(s *NodeGPUTopologySpec) { s.LinkKinds[2].Bandwidth = resource.MustParse("1P") }, "spec.linkKinds[2].bandwidth"},
		"a negative latency":                {func(s *NodeGPUTopologySpec) { s.LinkKinds[2].LatencyNanoseconds = -1 }, "spec.linkKinds[2].latencyNanoseconds"},
		"an adapter with too few distances": {func(s *NodeGPUTopologySpec) { s.NICs[0].Distances = []string{"PIX"} }, "spec.nics[0].distances: 1 entries for 4 gpus"},
		"an adapter with an unknown level":  {func(s *NodeGPUTopologySpec) { s.NICs[0].Distances[2] = "NV4" }, "spec.nics[0].distances[2]"},
		"more GPUs than a machine may have": {func(s *NodeGPUTopologySpec) { *s = manyGPUs(65) }, "spec.gpus: 65 entries"},
		"more NUMA nodes than a mask has bits": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes = make([]NUMANode, 65) }, "spec.numaNodes: 65 entries",
		},
		"a resource for each GPU": {
			func(s *NodeGPUTopologySpec) {
				*s = manyGPUs(9)
				for i := range s.GPUs {
					s.GPUs[i].Resource = fmt.Sprintf("a/b%d", i)
				}
			}, "spec.gpus[8].resource: more than 8 resources",
		},
		"an id of a megabyte": {
			func(s *NodeGPUTopologySpec) { s.GPUs[0].ID = strings.Repeat("x", 1<<20) }, "spec.gpus[0]: a text of more than 256 bytes",
		},
		"memory whose sums overflow": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes[1].Memory = new(resource.MustParse("9223372036854775807")) }, "spec.numaNodes[1].memory: is more than 4Pi",
		},
		"negative memory": {
			func(s *NodeGPUTopologySpec) { s.GPUs[1].Memory = new(resource.MustParse("-1")) }, "spec.gpus[1].memory: is negative",
		},
		"a distance that is negative": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Distances = []int32{10, -1} }, "spec.numaNodes[0].distances[1]: -1",
		},
		"CPUs that do not fit any machine": {
			func(s *NodeGPUTopologySpec) { s.NUMANodes[0].CPUs = "0-4294967295" }, "spec.numaNodes[0].cpus",
		},
		"lists of a few bytes that name CPUs without end": {
			func(s *NodeGPUTopologySpec) {
				for i := range 9 {
					s.NUMANodes[1].Siblings = append(s.NUMANodes[1].Siblings, fmt.Sprintf("%d-%d", i, i+8000))
				}
			}, "spec.numaNodes[1].siblings[0]: 8001 hyper-threads",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := FromGraph("node-1", "", fourGPUs(t))
			tc.breakIt(&obj.Spec)
			_, err := obj.Graphs()
			if err == nil {
				t.Fatalf("accepted, want an error about %s", tc.want)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `NodeGPUTopology "node-1"`) {
				t.Errorf("got %q, want the object's name and %q", err, tc.want)
			}
		})
	}
}

func manyGPUs(n int32) NodeGPUTopologySpec {
	var s NodeGPUTopologySpec
	for i := range n {
		s.GPUs = append(s.GPUs, GPU{ID: "g" + string('0'+i), Index: i, NUMANode: -1})
	}
	return s
}

// TestCPUListBounds: the CPU lists of an object are bounded together.
func TestCPUListBounds(t *testing.T) {
	var lists CPULists
	for range 1000 { // the same list costs once
		if _, err := lists.Read("0-8191"); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	read := 1
	for ; err == nil && read < 1000; read++ {
		_, err = lists.Read(fmt.Sprintf("0-%d", 8191-read))
	}
	if err == nil || read > 10 {
		t.Errorf("%d lists of 8000 CPUs are read (error %v), want an error before the tenth", read, err)
	}
}
