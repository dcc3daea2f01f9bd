// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/fixtures"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
)

// view is the part of a machine that both a capture and the catalogue have.
type view struct {
	Links    [][]string
	NUMA     []int
	CPUs     []string
	NICs     [][]string
	Switched bool
}

func viewOf(g *nvtopo.Graph) view {
	v := view{Switched: g.Link(0, 1).Switched}
	for i := range g.Len() {
		row := make([]string, g.Len())
		for j := range row {
			row[j] = g.Link(i, j).Class.String()
		}
		v.Links = append(v.Links, row)
		v.NUMA = append(v.NUMA, g.GPUs[i].NUMANode)
		v.CPUs = append(v.CPUs, g.GPUs[i].CPUs.String())
	}
	for _, n := range g.NICs {
		var row []string
		for _, l := range n.Levels {
			row = append(row, l.String())
		}
		v.NICs = append(v.NICs, row)
	}
	return v
}

// TestCaptures compares the catalogue with the output of nvidia-smi on such machines.
func TestCaptures(t *testing.T) {
	dir := fixtures.Dir(t)
	tests := map[string]struct {
		capture string
		// The capture's own deviations from the machine, with the reason.
		change func(capture, machine *view)
	}{
		"a100-pcie-4-bridged": {capture: "azure-nc96ads-4xa100-pcie-nv12-pairs"},
		"dgx-a100":            {capture: "dgx-a100"},
		"dgx-h100":            {capture: "dgx-h100"},
		"dgx1-p100": {capture: "dgx1-p100", change: func(c, m *view) {
			// Taken in a job with CPU 1 only, so its affinity is meaningless.
			c.NUMA, c.CPUs = m.NUMA, m.CPUs
			orderAdapters(c)
		}},
		"dgx1-v100": {capture: "dgx1-v100", change: func(c, _ *view) { orderAdapters(c) }},
		"gb200-tray": {capture: "gb200-4gpu-34numa", change: func(c, m *view) {
			// "0,3-9,11-17" needs numactl to be resolved.
			c.NUMA = m.NUMA
		}},
		"hgx-a100-4": {capture: "nersc-perlmutter-4xa100-nps4"},
		"hgx-a100-8": {capture: "hgx-a100-8gpu-2nic"},
		"hgx-b200":   {capture: "hgx-b200-8gpu-16nic"},
		"hgx-h200":   {capture: "dgx-h100"},
		"rtx4090-8":  {capture: "rtx4090-8gpu-all-sys"},
		"v100-pcie-8": {capture: "pcie-8gpu-pix-phb-sys", change: func(c, m *view) {
			// No affinity columns.
			c.NUMA, c.CPUs = m.NUMA, m.CPUs
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, g := graphOf(t, name)
			f, err := os.Open(filepath.Join(dir, "topo", tc.capture+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			captured, err := smi.Parse(f, smi.Options{Model: m.Model, PCIeGen: m.PCIeGen})
			if err != nil {
				t.Fatal(err)
			}
			want, got := viewOf(captured), viewOf(g)
			if tc.change != nil {
				tc.change(&want, &got)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-capture +catalogue):\n%s", d)
			}
			for i := range g.Len() {
				for j := range i {
					if a, b := captured.Link(i, j), g.Link(i, j); a.Bandwidth != b.Bandwidth || a.Latency != b.Latency {
						t.Errorf("link of %d and %d: capture %+v, catalogue %+v", i, j, a, b)
					}
				}
			}
		})
	}
}

// orderAdapters undoes the DGX-1's order of columns: mlx5_0, 2, 1, 3.
func orderAdapters(v *view) { v.NICs[1], v.NICs[2] = v.NICs[2], v.NICs[1] }
