// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// example reads one of the texts in testdata: those of a whole machine.
func example(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// fromFirst lists the links of GPU 0 to each other one.
func fromFirst(g *nvtopo.Graph) (out []nvtopo.Link) {
	for j := 1; j < g.Len(); j++ {
		out = append(out, g.Link(0, j))
	}
	return out
}

func xgmi(lanes int, bandwidth, latency int64) nvtopo.Link {
	return nvtopo.Link{Class: nvtopo.Class{Kind: nvtopo.KindXGMI, Lanes: lanes}, Bandwidth: bandwidth, Latency: latency}
}

func hccs(lanes int, bandwidth, latency int64, switched bool) nvtopo.Link {
	return nvtopo.Link{Class: nvtopo.Class{Kind: nvtopo.KindHCCS, Lanes: lanes}, Bandwidth: bandwidth, Latency: latency, Switched: switched}
}

func pcie(level nvtopo.PCIeLevel, bandwidth, latency int64) nvtopo.Link {
	return nvtopo.Link{Class: nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level}, PCIe: level, Bandwidth: bandwidth, Latency: latency}
}

// repeat is the concatenation of n copies of l.
func repeat(l nvtopo.Link, n int) []nvtopo.Link { return slices.Repeat([]nvtopo.Link{l}, n) }

func TestOtherVendorsMachines(t *testing.T) {
	near, far := pcie(nvtopo.PCIeNODE, 20_400_000, 6_000), pcie(nvtopo.PCIeSYS, 12_000_000, 10_000)
	tests := map[string]struct {
		model    string
		wantTool Tool
		wantFrom []nvtopo.Link // from GPU 0 to 1, 2, …
		wantNUMA []int
		wantID   string // of the last
		wantCPUs string // of the last
	}{
		"ascend-910b3-8": {
			model: "Ascend 910B3", wantTool: Ascend,
			wantFrom: repeat(hccs(1, 28_000_000, 1_000, false), 7),
			wantNUMA: []int{6, 6, 4, 4, 0, 0, 2, 2}, wantID: "NPU-7", wantCPUs: "48-71",
		},
		"ascend-910-two-groups": {
			model: "Ascend 910A", wantTool: Ascend,
			wantFrom: append(repeat(hccs(1, 30_000_000, 1_000, false), 3), repeat(far, 4)...),
			wantNUMA: []int{0, 1, 2, 3, 4, 5, 6, 7}, wantID: "NPU-7", wantCPUs: "168-191",
		},
		"ascend-910b-16": {
			wantTool: Ascend,
			wantFrom: append(repeat(hccs(1, 28_000_000, 1_000, false), 7), repeat(far, 8)...),
			wantNUMA: []int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, wantID: "NPU-15", wantCPUs: "32-63,96-127",
		},
		"ascend-a3-16": {
			wantTool: Ascend,
			wantFrom: append(repeat(hccs(9, 252_000_000, 1_000, false), 1), repeat(hccs(7, 196_000_000, 2_000, true), 14)...),
			wantNUMA: slices.Repeat([]int{-1}, 16), wantID: "NPU-15",
		},
		"mi250x-8": {
			model: "AMD Instinct MI250X", wantTool: AMD,
			// Weights 15, 15, 30, 30, 30, 15, 30.
			wantFrom: []nvtopo.Link{
				xgmi(1, 50_000_000, 1_000), xgmi(1, 50_000_000, 1_000), xgmi(1, 25_000_000, 2_000), xgmi(1, 25_000_000, 2_000),
				xgmi(1, 25_000_000, 2_000), xgmi(1, 50_000_000, 1_000), xgmi(1, 25_000_000, 2_000),
			},
			wantNUMA: []int{3, 3, 1, 1, 0, 0, 2, 2}, wantID: "GPU-7",
		},
		"mi300x-8": {
			model: "AMD Instinct MI300X", wantTool: AMD,
			wantFrom: repeat(xgmi(1, 64_000_000, 1_000), 7),
			wantNUMA: []int{0, 0, 0, 0, 1, 1, 1, 1}, wantID: "GPU-7",
		},
		"mi100-two-hives": {
			model: "AMD Instinct MI100", wantTool: AMD,
			wantFrom: append(repeat(xgmi(1, 46_000_000, 1_000), 3), repeat(far, 4)...),
			wantNUMA: []int{0, 0, 0, 0, 1, 1, 1, 1}, wantID: "GPU-7",
		},
		"amd-pcie-4": {
			wantTool: AMD, wantFrom: []nvtopo.Link{near, far, far}, wantNUMA: []int{0, 0, 1, 1}, wantID: "GPU-3",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, tool, err := ParseTool(strings.NewReader(example(t, name)), Options{Model: tc.model})
			if err != nil {
				t.Fatal(err)
			}
			if tool != tc.wantTool {
				t.Errorf("text of tool %d, want %d", tool, tc.wantTool)
			}
			if d := cmp.Diff(tc.wantFrom, fromFirst(g)); d != "" {
				t.Errorf("links of GPU 0 (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.wantNUMA, numaOf(g)); d != "" {
				t.Errorf("NUMA nodes (-want +got):\n%s", d)
			}
			last := g.GPUs[g.Len()-1]
			if last.UUID != tc.wantID || last.CPUs.String() != tc.wantCPUs || last.Model != tc.model {
				t.Errorf("the last is %+v, want %s with CPUs %q", last, tc.wantID, tc.wantCPUs)
			}
		})
	}
}

// TestOtherVendorsPrefixes cuts each text after every third byte: a piece is
// refused, or has the whole's links.
func TestOtherVendorsPrefixes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d texts: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text := example(t, name)
			whole, err := Parse(strings.NewReader(text), Options{})
			if err != nil {
				t.Fatal(err)
			}
			refused := 0
			for end := 0; end < len(text); end += 3 {
				g, err := Parse(strings.NewReader(text[:end]), Options{})
				if err != nil {
					checkPosition(t, text[:end], err)
					refused++
					continue
				}
				for i := range whole.Len() {
					for j := range whole.Len() {
						if g.Len() != whole.Len() || g.Link(i, j) != whole.Link(i, j) {
							t.Fatalf("the first %d bytes give other links", end)
						}
					}
				}
			}
			if refused == 0 {
				t.Error("no piece is refused")
			}
		})
	}
}

func TestOtherVendorsErrors(t *testing.T) {
	const rocmPair = "=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n"
	weights := func(w string) string {
		return "=== Weight between two GPUs ===\n  GPU0 GPU1\nGPU0 0 " + w + "\nGPU1 " + w + " 0\n" + rocmPair
	}
	tests := map[string]struct {
		text string
		opts Options
		want SyntaxError
	}{
		"an NPU's row missing": {"\tNPU0 NPU1\nNPU0 X HCCS\n", Options{}, SyntaxError{2, 12, "row NPU1 is missing: the text ends"}},
		"NPU rows alone":       {"NPU0 X HCCS\nNPU1 HCCS X\n", Options{}, SyntaxError{1, 1, "row before the header line NPU0, NPU1, …"}},
		"an NPU cell cut":      {"\tNPU0 NPU1\nNPU0 X HCCS\nNPU1 HCC", Options{}, SyntaxError{3, 6, `row NPU1, column NPU0: want HCCS, HCCS_SW, SIO, PIX, PXB, PHB or SYS, found "HCC"`}},
		"a path npu-smi does not know": {
			"\tNPU0 NPU1\nNPU0 X NA\nNPU1 NA X\n",
			Options{},
			SyntaxError{2, 8, "row NPU0, column NPU1: npu-smi does not know this path (NA)"},
		},
		"NPUs asymmetric": {
			"\tNPU0 NPU1\nNPU0 X HCCS\nNPU1 PIX X\n",
			Options{},
			SyntaxError{3, 6, "NPU1 to NPU0 is PIX, but NPU0 to NPU1 is HCCS1: the matrix is not symmetric"},
		},
		"NPUs twice":          {"\tNPU0 NPU0\n", Options{}, SyntaxError{1, 7, "column NPU0 after NPU0: want ascending numbers"}},
		"NPUs and dies mixed": {"\tNPU0 Phy-ID1\n", Options{}, SyntaxError{1, 7, "column Phy-ID1 after NPU0: want ascending numbers"}},
		"an adapter among the NPUs": {
			"\tNPU0 NPU1 NIC0\n", Options{}, SyntaxError{1, 12, `column title "NIC0" is neither an NPU nor an affinity`},
		},
		"an NPU's affinity": {
			"\tNPU0 CPU Affinity\nNPU0 X 0-x\n",
			Options{},
			SyntaxError{2, 8, `affinity "0-x": want a list such as 0-3,8 or N/A: CPU list "0-x": "x" is not a CPU number`},
		},
		"no link types":       {"=== Hops between two GPUs ===\n  GPU0\nGPU0 0\n", Options{}, SyntaxError{3, 7, `the table "Link Type between two GPUs" is missing`}},
		"a title alone":       {"=== Link Type between two GPUs ===\n", Options{}, SyntaxError{1, 35, "Link Type between two GPUs: the header is missing: the text ends"}},
		"a GPU's row missing": {"=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 XGMI\n", Options{}, SyntaxError{3, 12, "Link Type between two GPUs: row GPU1 is missing: the text ends"}},
		"a row too many":      {rocmPair + "GPU2 XGMI XGMI\n", Options{}, SyntaxError{5, 1, "row GPU2 has no column in the header"}},
		"a value too many":    {"=== Link Type between two GPUs ===\n  GPU0\nGPU0 0 XGMI\n", Options{}, SyntaxError{3, 8, `want nothing behind the last column of the header, found "XGMI"`}},
		"a row cut":           {"=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI", Options{}, SyntaxError{4, 10, "row GPU1 ends before column GPU1"}},
		"the table twice":     {rocmPair + rocmPair, Options{}, SyntaxError{5, 1, `a second "Link Type between two GPUs": give one output`}},
		"an unknown link":     {strings.ReplaceAll(rocmPair, "XGMI", "XXXX"), Options{}, SyntaxError{3, 8, `row GPU0, column GPU1: want XGMI or PCIE, found "XXXX"`}},
		"links asymmetric": {
			strings.Replace(rocmPair, "GPU1 XGMI", "GPU1 PCIE", 1),
			Options{},
			SyntaxError{4, 6, `Link Type between two GPUs: GPU1 to GPU0 is "PCIE", but GPU0 to GPU1 is "XGMI": the table is not symmetric`},
		},
		"a weight between hops": {weights("17"), Options{}, SyntaxError{7, 8, "row GPU0, column GPU1: XGMI of weight 17: want a multiple of 15, one hop each, up to 240"}},
		"a weight of words":     {weights("N/A"), Options{}, SyntaxError{3, 8, `row GPU0, column GPU1: want a number between 1 and 10000, found "N/A"`}},
		"a weight without end":  {weights("99999999999999999999"), Options{}, SyntaxError{3, 8, `row GPU0, column GPU1: want a number between 1 and 10000, found "99999999999999999999"`}},
		"other GPUs elsewhere": {
			"=== Hops between two GPUs ===\n  GPU0\nGPU0 0\n" + rocmPair,
			Options{},
			SyntaxError{2, 3, `Hops between two GPUs: other GPUs than in "Link Type between two GPUs"`},
		},
		"a GPU without a NUMA node": {
			rocmPair + "=== Numa Nodes ===\nGPU[0] : (Topology) Numa Node: 0\n",
			Options{},
			SyntaxError{4, 1, `GPU1 is not in the list "Numa Nodes"`},
		},
		"a NUMA line cut": {
			rocmPair + "=== Numa Nodes ===\nGPU[0] : (Topology) Numa\n",
			Options{},
			SyntaxError{6, 1, `want a line such as "GPU[0] : (Topology) Numa Node: 0"`},
		},
		"a NUMA node out of range": {
			rocmPair + "=== Numa Nodes ===\nGPU[0] : (Topology) Numa Node: 2000\n",
			Options{},
			SyntaxError{6, 32, "NUMA node 2000 is greater than 1023"},
		},
		"a NUMA node that numactl does not know": {
			rocmPair + "=== Numa Nodes ===\nGPU[0] : (Topology) Numa Node: 3\nGPU[1] : (Topology) Numa Node: 0\n",
			Options{NUMA: []nvtopo.NUMANode{{ID: 0}}},
			SyntaxError{6, 32, "NUMA node 3 is not among the 1 nodes that numactl lists"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(strings.NewReader(tc.text), tc.opts)
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("graph %v, error %v, want a SyntaxError", g, err)
			}
			if d := cmp.Diff(tc.want, *got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestOtherVendorsVariants parses the variants of releases and shells.
func TestOtherVendorsVariants(t *testing.T) {
	known := []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 1, CPUs: nvtopo.NewCPUSet(2, 3)}}
	tests := map[string]struct {
		text      string
		opts      Options
		want      []string
		wantNUMA  []int
		wantCPUs  []string
		wantIndex []int
	}{
		"two dies of a container, by physical id": {
			text: "           Phy-ID12   Phy-ID13\nPhy-ID12   X          SIO\nPhy-ID13   SIO        X\n",
			want: []string{"X HCCS9", "HCCS9 X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"", ""}, wantIndex: []int{12, 13},
		},
		"PCIe cards, indented cells, a prompt": {
			text: "# npu-smi info -t topo\r\n        NPU0    NPU1    NPU2  CPU Affinity\r\nNPU0     X      PXB     SYS     2-3\r\n" +
				"NPU1    PXB      X      PHB     2-3\r\nNPU2    SYS     PHB      X      0-1\r\n",
			want: []string{"X PXB SYS", "PXB X PHB", "SYS PHB X"}, wantNUMA: []int{1, 1, 0},
			wantCPUs: []string{"2-3", "2-3", "0-1"}, wantIndex: []int{0, 1, 2},
		},
		"NUMA nodes by numactl": {
			text: "\tNPU0 NPU1 CPU Affinity\nNPU0 X HCCS 0-1\nNPU1 HCCS X 0-1\n", opts: Options{NUMA: known},
			want: []string{"X HCCS1", "HCCS1 X"}, wantNUMA: []int{0, 0}, wantCPUs: []string{"0-1", "0-1"}, wantIndex: []int{0, 1},
		},
		"link types alone, two of four GPUs": {
			text: "=== Link Type between two GPUs ===\n  GPU1 GPU3\nGPU1 0 PCIE\nGPU3 PCIE 0\n=== End of ROCm SMI Log ===\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"", ""}, wantIndex: []int{1, 3},
		},
		"an old list of NUMA nodes, an affinity that sysfs does not know": {
			text: "=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 PCIE\nGPU1 PCIE 0\n=== Numa Nodes ===\n" +
				"GPU 0          : (Topology) Numa Node: 1\nGPU 0          : (Topology) Numa Affinity: -1\nGPU 1          : (Topology) Numa Node: 1\n",
			opts: Options{NUMA: known},
			want: []string{"X NODE", "NODE X"}, wantNUMA: []int{1, 1}, wantCPUs: []string{"2-3", "2-3"}, wantIndex: []int{0, 1},
		},
		"one GPU": {
			text: "=== Link Type between two GPUs ===\n       GPU0         \nGPU0   0            \n",
			want: []string{"X"}, wantNUMA: []int{-1}, wantCPUs: []string{""}, wantIndex: []int{0},
		},
		"what nvtopo matrix draws of them": {
			text: "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tXGMI4\tXGMI1\nGPU1\tXGMI4\t X \tXGMI1\nGPU2\tXGMI1\tXGMI1\t X \n",
			want: []string{"X XGMI4 XGMI1", "XGMI4 X XGMI1", "XGMI1 XGMI1 X"}, wantNUMA: []int{-1, -1, -1},
			wantCPUs: []string{"", "", ""}, wantIndex: []int{0, 1, 2},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(strings.NewReader(tc.text), tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			var index []int
			for i := range g.GPUs {
				index = append(index, g.GPUs[i].Index)
			}
			got := []any{classes(g), numaOf(g), cpusOf(g), index}
			if d := cmp.Diff([]any{tc.want, tc.wantNUMA, tc.wantCPUs, tc.wantIndex}, got); d != "" {
				t.Errorf("classes, NUMA nodes, CPUs, indices (-want +got):\n%s", d)
			}
		})
	}
}
