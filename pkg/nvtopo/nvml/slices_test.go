// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestProfileOf uses the memory of GPUs that nvidia-smi prints in MiB, and that of the slices in NVIDIA's
// MIG user guide.
func TestProfileOf(t *testing.T) {
	const mib = 1 << 20
	tests := map[string]struct {
		slice  Slice
		memory int64
		want   string
	}{
		"1g of an H100":                 {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 9984 * mib}, 81559 * mib, "1g.10gb"},
		"1g with twice the memory":      {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 19968 * mib}, 81559 * mib, "1g.20gb"},
		"3g of an H100":                 {Slice{GPUSlices: 3, ComputeSlices: 3, MemoryBytes: 40448 * mib}, 81559 * mib, "3g.40gb"},
		"all of an H100":                {Slice{GPUSlices: 7, ComputeSlices: 7, MemoryBytes: 80896 * mib}, 81559 * mib, "7g.80gb"},
		"1g of an A100 of 40 GB":        {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 4864 * mib}, 40960 * mib, "1g.5gb"},
		"3g of an A100 of 40 GB":        {Slice{GPUSlices: 3, ComputeSlices: 3, MemoryBytes: 19968 * mib}, 40960 * mib, "3g.20gb"},
		"1g of an A30":                  {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 5952 * mib}, 24576 * mib, "1g.6gb"},
		"1g of an H200":                 {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 16384 * mib}, 143771 * mib, "1g.18gb"},
		"a part of a slice's computers": {Slice{GPUSlices: 3, ComputeSlices: 1, MemoryBytes: 40448 * mib}, 81559 * mib, "1c.3g.40gb"},
		"the GPU's memory is not known": {Slice{GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 9984 * mib}, 0, ""},
		"the driver tells nothing":      {Slice{}, 81559 * mib, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := profileOf(&tc.slice, tc.memory); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestGPUParts: the parts of a GPU are read.
func TestGPUParts(t *testing.T) {
	lib, s := h100(t, 2)
	g := lib.gpus[1]
	g.mig, g.memory = true, 81559<<20
	g.slices = []Slice{
		{UUID: "MIG-a", GPUSlices: 3, ComputeSlices: 3, MemoryBytes: 40448 << 20},
		{UUID: "MIG-b", GPUSlices: 1, ComputeSlices: 1, MemoryBytes: 9984 << 20},
		{UUID: "MIG-c"}, // the driver returns no attributes of it
	}
	two := []nvtopo.Slice{{UUID: "MIG-a", Profile: "3g.40gb"}, {UUID: "MIG-b", Profile: "1g.10gb"}}
	d := New(lib, s.root, Options{})
	var last *nvtopo.Graph
	read := func(when string, want []nvtopo.Slice) {
		t.Helper()
		graph, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if diff := cmp.Diff(want, graph.GPUs[1].Slices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if len(graph.GPUs[0].Slices) > 0 || graph.Healthy().Len() != 1 {
			t.Errorf("%s: GPU 0 has slices %v, and %d GPUs may be given out whole, want 1", when, graph.GPUs[0].Slices, graph.Healthy().Len())
		}
		last = graph
	}
	read("partitioned", two)
	g.errs["Slices"] = failure(KindOther, "Unknown Error")
	read("the driver does not answer", two)
	d = New(lib, s.root, Options{Previous: last})
	read("nor does it after a restart", two)
	clear(g.errs)
	g.slices = g.slices[:1]
	read("partitioned anew", two[:1])
	g.errs["MIGEnabled"] = failure(KindOther, "Unknown Error")
	g.mig = false
	read("the mode cannot be read", two[:1])
	clear(g.errs)
	graph, _, err := d.Graph(t.Context())
	if err != nil || graph.GPUs[1].Slices != nil || graph.Healthy().Len() != 2 {
		t.Errorf("MIG is off: %v, slices %v, %d whole", err, graph.GPUs[1].Slices, graph.Healthy().Len())
	}
}
