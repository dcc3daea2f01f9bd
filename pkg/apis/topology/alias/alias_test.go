// SPDX-License-Identifier: Apache-2.0

package alias

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

func graphOf(tb testing.TB, name string) *nvtopo.Graph {
	tb.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// TestMachineNames: machines are named by model and interconnect.
func TestMachineNames(t *testing.T) {
	for name, want := range map[string][2]string{
		"hgx-a100-8":          {"nvidia-a100", "nvswitch"},
		"dgx-a100":            {"nvidia-a100", "nvswitch"},
		"hgx-a100-4":          {"nvidia-a100", "nvlink"},
		"a100-pcie-4-bridged": {"nvidia-a100", "nvlink"},
		"dgx-h100":            {"nvidia-h100", "nvswitch"},
		"h200-nvl-8":          {"nvidia-h200", "nvlink"},
		"gb200-tray":          {"nvidia-gb200", "nvswitch"},
		"dgx1-v100":           {"nvidia-v100", "nvlink"},
		"v100-pcie-8":         {"nvidia-v100", "pcie"},
		"dgx1-p100":           {"nvidia-p100", "nvlink"},
		"a6000-8-bridged":     {"nvidia-rtx-a6000", "nvlink"},
		"rtx4090-8":           {"nvidia-geforce-rtx-4090", "pcie"},
		"l40s-8":              {"nvidia-l40s", "pcie"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graphOf(t, name)
			if got := [2]string{Accelerator(g, "nvidia.com/gpu"), Interconnect(g)}; got != want {
				t.Errorf("accelerator and interconnect are %v, want %v", got, want)
			}
		})
	}
}

func TestAccelerator(t *testing.T) {
	tests := map[string]struct {
		models   []string
		resource string // nvidia.com/gpu when empty
		want     string
	}{
		"an old driver's name of a PCIe card":  {models: []string{"Tesla V100S-PCIE-32GB"}, want: "nvidia-v100s"},
		"a driver that leaves the vendor out":  {models: []string{"A100-SXM4-40GB"}, want: "nvidia-a100"},
		"memory by its kind":                   {models: []string{"NVIDIA GH200 144G HBM3e"}, want: "nvidia-gh200"},
		"a workstation GPU has no form":        {models: []string{"NVIDIA RTX 6000 Ada Generation"}, want: "nvidia-rtx-6000-ada-generation"},
		"a model that begins with a number":    {models: []string{"NVIDIA 80GB"}, want: "nvidia-80gb"},
		"two forms of one model":               {models: []string{"NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"}, want: "nvidia-a100"},
		"two models":                           {models: []string{"NVIDIA A10", "Tesla T4"}, want: "mixed"},
		"a known and an unknown model":         {models: []string{"NVIDIA A10", ""}, want: "mixed"},
		"no model":                             {models: []string{"", ""}},
		"no GPU":                               {},
		"another vendor's":                     {models: []string{"Ascend 910B"}, resource: "example.com/npu", want: "ascend-910b"},
		"NVIDIA's under a resource of others":  {models: []string{"NVIDIA A10"}, resource: "example.com/gpu", want: "nvidia-a10"},
		"a data center GPU before Tesla ended": {models: []string{"Tesla T4"}, want: "nvidia-t4"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := &nvtopo.Graph{}
			for _, m := range tc.models {
				g.GPUs = append(g.GPUs, nvtopo.GPU{Model: m})
			}
			resource := tc.resource
			if resource == "" {
				resource = "nvidia.com/gpu"
			}
			if got := Accelerator(g, resource); got != tc.want {
				t.Errorf("accelerator %q, want %q", got, tc.want)
			}
		})
	}
}

// TestConnectionDirections: connections are listed in both directions.
func TestConnectionDirections(t *testing.T) {
	tests := map[string]struct {
		machine string
		want    Connection
	}{
		"NVLink 3 through a switch":       {"hgx-a100-8", Connection{0, 7, "NVSwitch", 600}},
		"two NVLinks 2 of a V100":         {"dgx1-v100", Connection{0, 3, "NVLink", 100}},
		"PCIe 4 behind one bridge":        {"l40s-8", Connection{0, 1, "PCIe", 48}},
		"across host bridges of one node": {"l40s-8", Connection{0, 2, "PCIe", 40.8}},
		"across the sockets":              {"l40s-8", Connection{0, 4, "SYS", 24}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, c := range Describe(graphOf(t, tc.machine)).Connections {
				if c.From == tc.want.From && c.To == tc.want.To {
					if diff := cmp.Diff(tc.want, c); diff != "" {
						t.Errorf("connection (-want,+got):\n%s", diff)
					}
					return
				}
			}
			t.Error("there is no such connection")
		})
	}
}

// TestLargestAnnotation: the largest annotation fits. A Node takes 256 KiB of annotations in all.
func TestLargestAnnotation(t *testing.T) {
	const limit = 128 << 10
	gpus, links := make([]nvtopo.GPU, nvtopo.MaxGPUs), map[[2]int]nvtopo.Link{}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{Index: i, NUMANode: i, PCIBusID: strings.Repeat("f", 16)}
		for j := range i {
			links[[2]int{j, i}] = nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 64}, nvtopo.PCIeSYS, 5, 14_062_345, true)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nil, nil, links)
	if err != nil {
		t.Fatal(err)
	}
	text := Annotation(g)
	if len(text) > limit {
		t.Errorf("%d bytes", len(text))
	}
	var back Topology
	if err := json.Unmarshal([]byte(text), &back); err != nil || len(back.NVLinks) != nvtopo.MaxGPUs*(nvtopo.MaxGPUs-1)/2 {
		t.Errorf("%d links, %v", len(back.NVLinks), err)
	}
}
