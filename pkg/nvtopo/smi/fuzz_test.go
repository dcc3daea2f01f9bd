// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		pair + pairRows, withAdapters + "NIC Legend:\n  NIC0: mlx5_0\n", mesh(8, "NV12"), mesh(3, "SYS"),
		"\t GPU0GPU1mlx5_0\tCPU Affinity\nGPU0\t XSOCPIX\t0-3\nGPU1\tSOCXSOC\t4-7\nmlx5_0\tPIXSOC\t X\n",
		"\x1b[4m\tGPU0\x1b[0m\r\nGPU0\t X \r\n", " \tGPU0\tGPU1\n GPU0\tX\tOK\n",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	addVendors(f)
	known := []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 2, 3)}, {ID: 1, CPUs: nvtopo.NewCPUSet(4, 5, 6, 7)}, {ID: 2}}
	f.Fuzz(func(t *testing.T, text string, numactl bool) {
		var opts Options
		if numactl {
			opts.NUMA = known
		}
		g, err := Parse(strings.NewReader(text), opts)
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		checkGraph(t, g)
	})
}

// FuzzNPU and FuzzROCm call their parser for any text.
func FuzzNPU(f *testing.F) {
	addVendors(f)
	f.Fuzz(func(t *testing.T, text string, _ bool) {
		lines, err := readLines(strings.NewReader(text))
		if err != nil {
			return
		}
		m, err := readNPUMatrix(lines)
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		g, err := m.graph(Options{})
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		checkGraph(t, g)
	})
}

func FuzzROCm(f *testing.F) {
	addVendors(f)
	f.Fuzz(func(t *testing.T, text string, _ bool) {
		lines, err := readLines(strings.NewReader(text))
		if err != nil {
			return
		}
		g, err := parseROCm(lines, Options{})
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		checkGraph(t, g)
	})
}

// checkGraph fails unless the graph is one.
func checkGraph(t *testing.T, g *nvtopo.Graph) {
	t.Helper()
	if g.Len() == 0 || g.Len() > nvtopo.MaxGPUs {
		t.Fatalf("%d GPUs", g.Len())
	}
	ids := map[int]bool{nvtopo.UnknownNUMA: true}
	for _, n := range g.NUMANodes {
		ids[n.ID] = true
	}
	for i := range g.GPUs {
		if !ids[g.GPUs[i].NUMANode] {
			t.Errorf("GPU %d is on NUMA node %d, which the graph does not list", i, g.GPUs[i].NUMANode)
		}
		for j := range g.GPUs {
			if l := g.Link(i, j); l != g.Link(j, i) || (i != j) != (l.Bandwidth > 0 && l.Class != nvtopo.Class{}) {
				t.Errorf("link of %d and %d: %+v and %+v", i, j, l, g.Link(j, i))
			}
		}
	}
	for _, nic := range g.NICs {
		if len(nic.Levels) != g.Len() {
			t.Errorf("adapter %q has %d levels for %d GPUs", nic.Name, len(nic.Levels), g.Len())
		}
	}
}

// addVendors adds a text of every kind and size of the other tools.
func addVendors(f *testing.F) {
	f.Helper()
	for _, name := range []string{"ascend-910b3-8", "ascend-a3-16", "mi250x-8", "amd-pcie-4"} {
		f.Add(example(f, name), false)
		f.Add(example(f, name), true)
	}
	for _, s := range []string{
		"NPU0 NPU1 CPU Affinity\nNPU0 X PIX 0-3\nNPU1 PIX X 4-7\n", "Phy-ID3 Phy-ID9\nPhy-ID3 X SIO\nPhy-ID9 SIO X\n",
		"=Link Type between two GPUs=\nGPU0 GPU7\nGPU0 0 XGMI\nGPU7 XGMI 0\n=Numa Nodes=\nGPU[0]: (Topology) Numa Node: 0\nGPU[7]: (Topology) Numa Affinity: 2\n",
		"=Weight between two GPUs=\nGPU0\nGPU0 0\n=Link Type between two GPUs=\nGPU0\nGPU0 0\n",
	} {
		f.Add(s, true)
	}
}

func FuzzParseNUMA(f *testing.F) {
	f.Add(twoNodes)
	f.Add("node distances:\nnode 0 1\n0: 10 32\n1: 32 10\n")
	f.Add("available: 2 nodes (0,252)\nnode 0 cpus: 0 1\n2 3\nnode 0 size: 1 MB\nnode 252 cpus:\nnode 252 size: 2 MB\n")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := ParseNUMA(strings.NewReader(text))
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		if len(nodes) == 0 || len(nodes) > maxNUMANodes {
			t.Fatalf("%d nodes", len(nodes))
		}
		for i, n := range nodes {
			if i > 0 && nodes[i-1].ID >= n.ID {
				t.Errorf("node %d after node %d", n.ID, nodes[i-1].ID)
			}
			if n.Memory < 0 || len(n.Distances) != len(nodes[0].Distances) || len(n.Distances) != 0 && len(n.Distances) != len(nodes) {
				t.Errorf("node %+v of %d", n, len(nodes))
			}
		}
	})
}

// checkPosition fails unless err points into the text, or just behind a line.
func checkPosition(t *testing.T, text string, err error) {
	t.Helper()
	var e *SyntaxError
	if !errors.As(err, &e) {
		t.Fatalf("error %v is not a SyntaxError", err)
	}
	lines := strings.Split(text, "\n")
	if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
		t.Fatalf("error %v points outside the text", err)
	}
	if len(e.Msg) > 400 {
		t.Errorf("message of %d bytes", len(e.Msg))
	}
}
