// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// classes renders the GPU part of a graph, one string per row.
func classes(g *nvtopo.Graph) []string {
	var out []string
	for i := range g.Len() {
		var row []string
		for j := range g.Len() {
			c := g.Link(i, j).Class.String()
			if i == j {
				c = "X"
			}
			row = append(row, c)
		}
		out = append(out, strings.Join(row, " "))
	}
	return out
}

func numaOf(g *nvtopo.Graph) []int {
	var out []int
	for i := range g.GPUs {
		out = append(out, g.GPUs[i].NUMANode)
	}
	return out
}

func cpusOf(g *nvtopo.Graph) []string {
	var out []string
	for i := range g.GPUs {
		out = append(out, g.GPUs[i].CPUs.String())
	}
	return out
}

const (
	pair         = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
	pairRows     = "GPU0\t X \tPIX\t0-7,16-23\t0\t\tN/A\nGPU1\tPIX\t X \t8-15,24-31\t1\t\tN/A\n"
	noNUMA       = "\tGPU0\tGPU1\tCPU Affinity\n"
	withAdapters = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n" +
		"GPU0\t X \tNV4\tPXB\tSYS\t0-7\t0\n" +
		"GPU1\tNV4\t X \tSYS\tPXB\t8-15\t1\n" +
		"NIC0\tPXB\tSYS\t X \tSYS\t\t\n" +
		"NIC1\tSYS\tPXB\tSYS\t X \t\t\n"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text      string
		opts      Options
		want      []string
		wantNUMA  []int
		wantCPUs  []string
		wantNodes []nvtopo.NUMANode
	}{
		"tabs as printed": {
			text:     pair + pairRows,
			want:     []string{"X PIX", "PIX X"},
			wantNUMA: []int{0, 1}, wantCPUs: []string{"0-7,16-23", "8-15,24-31"},
			wantNodes: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)},
				{ID: 1, CPUs: nvtopo.NewCPUSet(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)},
			},
		},
		"shell prompts, escapes, carriage returns and a legend around it": {
			text: "root@node:~# nvidia-smi topo -m\r\n\x1b[4m\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\x1b[0m\r\n" +
				"GPU0\t X \tSYS\t0-7\t0\r\nGPU1\tSYS\t X \t8-15\t1\r\n\r\nLegend:\r\n\r\n  X    = Self\r\n" +
				"  SYS  = Connection across sockets\r\nroot@node:~# \r\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{0, 1}, wantCPUs: []string{"0-7", "8-15"},
		},
		"escapes that lost their escape byte": {
			text: "[4m\tGPU0\tGPU1[0m\nGPU0\t X \tPHB\nGPU1\tPHB\t X\n",
			want: []string{"X PHB", "PHB X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"", ""},
		},
		"no-break spaces of a web page": {
			text: "\u00a0\u00a0GPU0\u00a0GPU1\nGPU0\u00a0X\u00a0PHB\nGPU1 PHB X\n",
			want: []string{"X PHB", "PHB X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"", ""},
		},
		"a byte order mark and blank lines between the rows": {
			text: "\ufeff\tGPU0\tGPU1\n\nGPU0\t X \tPHB\n\nGPU1\tPHB\t X \n\n",
			want: []string{"X PHB", "PHB X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"", ""},
		},
		"header without its leading tab": {
			text:     "GPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNODE\t0-3\t0\nGPU1\tNODE\t X \t0-3\t0\n",
			want:     []string{"X NODE", "NODE X"},
			wantNUMA: []int{0, 0}, wantCPUs: []string{"0-3", "0-3"},
		},
		"glued header and SOC": {
			text: "\t    GPU0GPU1mlx5_0\tmlx5_1CPU Affinity\nGPU0\t X \tSOC\tPIX\tSOC\t0-3\nGPU1\tSOC\t X \tSOC\tPIX\t4-7\n" +
				"mlx5_0\tPIX\tSOC\t X \tSOC\t\nmlx5_1\tSOC\tPIX\tSOC\t X \t\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{0, 1}, wantCPUs: []string{"0-3", "4-7"},
		},
		"glued cells": {
			text: "\tGPU0\tGPU1\tGPU2\nGPU0\t XPXBNODE\nGPU1\tPXB X NODE\nGPU2\tNODENODE\t X \n",
			want: []string{"X PXB NODE", "PXB X NODE", "NODE NODE X"}, wantNUMA: []int{-1, -1, -1}, wantCPUs: []string{"", "", ""},
		},
		"glued NVLink cells and affinity": {
			text: "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\nGPU0\tXNV12SYS0-3\t0\nGPU1\tNV12XSYS0-3\t0\nGPU2\tSYSSYSX\t4-7\t1\n",
			want: []string{"X NV12 SYS", "NV12 X SYS", "SYS SYS X"}, wantNUMA: []int{0, 0, 1}, wantCPUs: []string{"0-3", "0-3", "4-7"},
		},
		"blanks instead of tabs": {
			text:     "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      NV18    0-71    0               2\nGPU1    NV18     X      72-143  1               10\n",
			want:     []string{"X NV18", "NV18 X"},
			wantNUMA: []int{0, 1}, wantCPUs: []string{"0-71", "72-143"},
		},
		"empty CPU affinity with tabs keeps the NUMA column": {
			text: pair + "GPU0\t X \tNV18\t44-51\t0\t\tN/A\nGPU1\tNV18\t X \t\t1\t\tN/A\n",
			want: []string{"X NV18", "NV18 X"}, wantNUMA: []int{0, 1}, wantCPUs: []string{"44-51", ""},
		},
		"an empty column without tabs is ambiguous, so unknown": {
			text: "  GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-3 0\nGPU1 SYS X 1\n\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{0, -1}, wantCPUs: []string{"0-3", ""},
		},
		"NUMA affinity N/A after a doubled tab": {
			text: "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV3\t0-47\t\tN/A\nGPU1\tNV3\t X \t0-47\t\tN/A\n",
			want: []string{"X NV3", "NV3 X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"0-47", "0-47"},
		},
		"several NUMA nodes for one GPU are unknown": {
			text: pair + "GPU0\t X \tNV4\t0,64\t0-3\t\tN/A\nGPU1\tNV4\t X \t0,64\t0-3\t\tN/A\n",
			want: []string{"X NV4", "NV4 X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"0,64", "0,64"},
		},
		"several NUMA nodes of which numactl gives CPUs to one": {
			text: pair + "GPU0\t X \tNV18\t0-1\t0,3-5\t\t2\nGPU1\tNV18\t X \t2-3\t1,7-8\t\t6\n",
			opts: Options{NUMA: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 1, CPUs: nvtopo.NewCPUSet(2, 3)}, {ID: 2}, {ID: 3}, {ID: 6},
			}},
			want: []string{"X NV18", "NV18 X"}, wantNUMA: []int{0, 1}, wantCPUs: []string{"0-1", "2-3"},
			wantNodes: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 1, CPUs: nvtopo.NewCPUSet(2, 3)}, {ID: 2}, {ID: 3}, {ID: 6},
			},
		},
		"several NUMA nodes of which numactl gives CPUs to two": {
			text: pair + "GPU0\t X \tNV18\t0-1\t0-1\t\tN/A\nGPU1\tNV18\t X \t2-3\t0-1\t\tN/A\n",
			opts: Options{NUMA: []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 1, CPUs: nvtopo.NewCPUSet(2, 3)}}},
			want: []string{"X NV18", "NV18 X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"0-1", "2-3"},
		},
		"no NUMA column: equal CPU lists are one node": {
			text: noNUMA + "GPU0\t X \tSYS\t8-15\nGPU1\tSYS\t X \t0-7\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{1, 0}, wantCPUs: []string{"8-15", "0-7"},
		},
		"no NUMA column and one list for GPUs that are SYS apart: clipped, so unknown": {
			text: noNUMA + "GPU0\t X \tSYS\t1-1\nGPU1\tSYS\t X \t1-1\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"1", "1"},
		},
		"no NUMA column and one list over NVLink: unknown": {
			text: noNUMA + "GPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n",
			want: []string{"X NV4", "NV4 X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"0-7", "0-7"},
		},
		"no NUMA column and lists that overlap: unknown": {
			text: noNUMA + "GPU0\t X \tSYS\t0-7\nGPU1\tSYS\t X \t7-9\n",
			want: []string{"X SYS", "SYS X"}, wantNUMA: []int{-1, -1}, wantCPUs: []string{"0-7", "7-9"},
		},
		"no NUMA column, but numactl knows the CPU lists": {
			text: noNUMA + "GPU0\t X \tNV4\t0-1\nGPU1\tNV4\t X \t3\n",
			opts: Options{NUMA: []nvtopo.NUMANode{{ID: 4, CPUs: nvtopo.NewCPUSet(0, 1)}, {ID: 5, CPUs: nvtopo.NewCPUSet(2, 3)}}},
			want: []string{"X NV4", "NV4 X"}, wantNUMA: []int{4, -1}, wantCPUs: []string{"0-1", "3"},
		},
		"one GPU": {
			text: "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-19\t0\n",
			want: []string{"X"}, wantNUMA: []int{0}, wantCPUs: []string{"0-19"},
		},
		"a peer-to-peer matrix before and after does not count": {
			text: " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n" + pair + pairRows + " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n",
			want: []string{"X PIX", "PIX X"}, wantNUMA: []int{0, 1}, wantCPUs: []string{"0-7,16-23", "8-15,24-31"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(strings.NewReader(tc.text), tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, classes(g)); d != "" {
				t.Errorf("classes (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.wantNUMA, numaOf(g)); d != "" {
				t.Errorf("NUMA nodes (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.wantCPUs, cpusOf(g)); d != "" {
				t.Errorf("CPUs (-want +got):\n%s", d)
			}
			if tc.wantNodes != nil {
				if d := cmp.Diff(tc.wantNodes, g.NUMANodes); d != "" {
					t.Errorf("nodes (-want +got):\n%s", d)
				}
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := map[string]struct {
		text string
		opts Options
		want SyntaxError
	}{
		"nothing": {"", Options{}, SyntaxError{1, 1, "no topology matrix found: no header line GPU0, GPU1, …"}},
		"text without a matrix": {
			"GPU 0: NVIDIA A10 (UUID: GPU-1)\nnone here",
			Options{},
			SyntaxError{2, 10, "no topology matrix found: no header line GPU0, GPU1, …"},
		},
		"last row missing": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\n",
			Options{},
			SyntaxError{2, 13, "row GPU1 is missing: the text ends"},
		},
		"a row in the middle missing": {
			"\tGPU0\tGPU1\tGPU2\nGPU0\t X \tSYS\tSYS\nGPU2\tSYS\tSYS\t X \n",
			Options{},
			SyntaxError{3, 1, `row GPU1 is missing: found "GPU2"`},
		},
		"legend instead of a row": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\n\nLegend:\n",
			Options{},
			SyntaxError{4, 1, `row GPU1 is missing: found "Legend:"`},
		},
		"adapter row missing": {
			"\tGPU0\tNIC0\nGPU0\t X \tSYS\n",
			Options{},
			SyntaxError{2, 13, "row NIC0 is missing: the text ends"},
		},
		"no rows": {"\tGPU0\tGPU1", Options{}, SyntaxError{1, 11, "row GPU0 is missing: the text ends"}},
		"no header": {
			"GPU0\t X \tSYS\nGPU1\tSYS\t X \n",
			Options{},
			SyntaxError{1, 1, "row before the header line GPU0, GPU1, …"},
		},
		"row cut within the cells": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS",
			Options{},
			SyntaxError{3, 9, "row GPU1 ends before column GPU1"},
		},
		"row cut within a cell": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSY",
			Options{},
			SyntaxError{3, 6, `row GPU1, column GPU0: want NV#, PIX, PXB, PHB, NODE or SYS, found "SY"`},
		},
		"last row cut before its affinity": {
			"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4",
			Options{},
			SyntaxError{3, 15, "row GPU1 is cut within its affinity columns"},
		},
		"asymmetric": {
			"\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPXB\t X \n",
			Options{},
			SyntaxError{3, 6, "GPU1 to GPU0 is PXB, but GPU0 to GPU1 is PIX: the matrix is not symmetric"},
		},
		"asymmetric in the adapters": {
			"\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tSYS\t X \n",
			Options{},
			SyntaxError{3, 6, "NIC0 to GPU0 is SYS, but GPU0 to NIC0 is PIX: the matrix is not symmetric"},
		},
		"an empty cell does not shift the others": {
			"\tGPU0\tGPU1\tGPU2\nGPU0\t X \t\tSYS\nGPU1\tSYS\t X \tSYS\nGPU2\tSYS\tSYS\t X \n",
			Options{},
			SyntaxError{2, 14, "row GPU0 ends before column GPU2"},
		},
		"diagonal out of place": {
			"\tGPU0\tGPU1\nGPU0\tSYS\t X \nGPU1\tSYS\t X \n",
			Options{},
			SyntaxError{2, 6, `row GPU0, column GPU0: want X, found "SYS"`},
		},
		"X off the diagonal": {
			"\tGPU0\tGPU1\nGPU0\t X \t X \nGPU1\tSYS\t X \n",
			Options{},
			SyntaxError{2, 11, `row GPU0, column GPU1: want NV#, PIX, PXB, PHB, NODE or SYS, found "X"`},
		},
		"a peer-to-peer matrix alone": {
			" \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n",
			Options{},
			SyntaxError{3, 12, "no topology matrix found: no header line GPU0, GPU1, …"},
		},
		"too many links": {
			"\tGPU0\tGPU1\nGPU0\t X \tNV65\nGPU1\tNV65\t X \n",
			Options{},
			SyntaxError{2, 10, `row GPU0, column GPU1: link class "NV65": want a number of links between 1 and 64 after "NV"`},
		},
		"NVLink to an adapter": {
			"\tGPU0\tNIC0\nGPU0\t X \tNV4\nNIC0\tNV4\t X \n",
			Options{},
			SyntaxError{2, 10, `row GPU0, column NIC0: an adapter has no "NV4"`},
		},
		"header with a gap":   {"\tGPU0\tGPU2\n", Options{}, SyntaxError{1, 7, `column GPU1 is missing: found "GPU2"`}},
		"header with a twin":  {"\tGPU0\tNIC0\tNIC0\n", Options{}, SyntaxError{1, 12, "column NIC0 appears twice"}},
		"header cut":          {"\tGPU0\tGPU1\tCPU Affinity\tNUMA Aff\n", Options{}, SyntaxError{1, 25, `unknown column "NUMA Aff"`}},
		"header cut in a GPU": {"\tGPU0\tGPU1\tGP\n", Options{}, SyntaxError{1, 12, `column title "GP" is neither a device nor an affinity`}},
		"header without a column that the rows have": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\tSYS\nGPU1\tSYS\t X \tSYS\nGPU2\tSYS\tSYS\t X \n",
			Options{},
			SyntaxError{4, 1, "row GPU2 has no column in the header, or a second matrix starts: give one matrix"},
		},
		"affinity without a column": {
			"\tGPU0\tGPU1\nGPU0\t X \tSYS\t0-3\nGPU1\tSYS\t X \t0-3\n",
			Options{},
			SyntaxError{2, 14, `want nothing behind the last column of the header, found "0-3"`},
		},
		"affinity of an adapter": {
			"\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tSYS\t0-3\nNIC0\tSYS\t X \t0-3\n",
			Options{},
			SyntaxError{3, 14, `want nothing behind the last column of the header, found "0-3"`},
		},
		"unreadable affinity": {
			"\tGPU0\tCPU Affinity\nGPU0\t X \t0-x\n",
			Options{},
			SyntaxError{2, 10, `affinity "0-x": want a list such as 0-3,8 or N/A: CPU list "0-x": "x" is not a CPU number`},
		},
		"columns count from the line as the reader sees it": {
			"\x1b[4m\tGPU0\tGPU1\x1b[0m\n\x1b[1mGPU0\x1b[0m\t X \tBAD\nGPU1\tSYS\t X \n",
			Options{},
			SyntaxError{2, 18, `row GPU0, column GPU1: want NV#, PIX, PXB, PHB, NODE or SYS, found "BAD"`},
		},
		"two matrices": {
			pair + pairRows + pair + pairRows,
			Options{},
			SyntaxError{5, 1, "row GPU0 has no column in the header, or a second matrix starts: give one matrix"},
		},
		"NUMA node that numactl does not know": {
			pair + pairRows,
			Options{NUMA: []nvtopo.NUMANode{{ID: 0}}},
			SyntaxError{3, 25, "NUMA node 1 is not among the 1 nodes that numactl lists"},
		},
		"NUMA node out of range": {
			"\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t2000\n",
			Options{},
			SyntaxError{2, 14, "NUMA node 2000 is greater than 1023"},
		},
		"legend of another machine": {
			withAdapters + "NIC Legend:\n  NIC2: mlx5_0\n",
			Options{},
			SyntaxError{7, 3, `legend entry "NIC2: mlx5_0" does not fit the matrix`},
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
			if want := fmt.Sprintf("line %d, column %d: ", tc.want.Line, tc.want.Column); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("message %q does not start with %q", err, want)
			}
		})
	}
}

func TestParseTooLong(t *testing.T) {
	if _, err := Parse(strings.NewReader(strings.Repeat("x", maxBytes+1)), Options{}); err == nil {
		t.Error("no error for a text above the limit")
	}
	var header strings.Builder
	for i := range nvtopo.MaxGPUs + 1 {
		fmt.Fprintf(&header, "\tGPU%d", i)
	}
	_, err := Parse(strings.NewReader(header.String()), Options{})
	if err == nil || !strings.Contains(err.Error(), "more than 64 GPUs") {
		t.Errorf("error %v for 65 GPUs", err)
	}
}

func TestParseAdapters(t *testing.T) {
	g, err := Parse(strings.NewReader(withAdapters+"\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_0\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []nvtopo.NIC{
		{Name: "mlx5_2", NUMANode: nvtopo.UnknownNUMA, Levels: []nvtopo.PCIeLevel{nvtopo.PCIePXB, nvtopo.PCIeSYS}},
		{Name: "mlx5_0", NUMANode: nvtopo.UnknownNUMA, Levels: []nvtopo.PCIeLevel{nvtopo.PCIeSYS, nvtopo.PCIePXB}},
	}
	if d := cmp.Diff(want, g.NICs); d != "" {
		t.Errorf("adapters (-want +got):\n%s", d)
	}
}

// mesh prints the matrix of n GPUs that all have the same class.
func mesh(n int, class string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\tGPU%d", i)
	}
	for i := range n {
		fmt.Fprintf(&b, "\nGPU%d", i)
		for j := range n {
			if i == j {
				b.WriteString("\t X ")
			} else {
				b.WriteString("\t" + class)
			}
		}
	}
	return b.String() + "\n"
}

func TestParseLinks(t *testing.T) {
	tests := map[string]struct {
		text string
		opts Options
		want nvtopo.Link // of GPU0 and GPU1
	}{
		"eight GPUs at NV12 are switched": {
			mesh(8, "NV12"),
			Options{Model: "NVIDIA A100-SXM4-80GB"},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 12}, 0, 0, 25_000_000, true),
		},
		"sixteen GPUs at NV6 are switched": {
			mesh(16, "NV6"),
			Options{},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 6}, 0, 0, 25_000_000, true),
		},
		"four GPUs at NV18 have not links enough to be direct": {
			mesh(4, "NV18"),
			Options{Model: "NVIDIA GB200"},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 18}, 0, 0, 50_000_000, true),
		},
		"four GPUs at NV6 are direct": {
			mesh(4, "NV6"),
			Options{Model: "NVIDIA H100 80GB HBM3"},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 6}, 0, 0, 25_000_000, false),
		},
		"a bridged pair is direct": {
			mesh(2, "NV4"),
			Options{Model: "NVIDIA GeForce RTX 3090"},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 4}, 0, 0, 14_060_000, false),
		},
		"PCIe takes its bandwidth from the generation": {
			mesh(2, "PXB"),
			Options{PCIeGen: 5},
			nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIePXB}, 0, 5, 0, false),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(strings.NewReader(tc.text), tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, g.Link(0, 1)); d != "" {
				t.Errorf("link (-want +got):\n%s", d)
			}
			if g.GPUs[1].UUID != "GPU-1" || g.GPUs[1].Model != tc.opts.Model {
				t.Errorf("GPU %+v, want UUID GPU-1 and model %q", g.GPUs[1], tc.opts.Model)
			}
		})
	}
}
