// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "testing"

// TestTFLOPS: a GPU has the speed of its data sheet, and one without the speed estimated from its memory.
func TestTFLOPS(t *testing.T) {
	tests := map[string]struct {
		gpu  GPU
		want float64
	}{
		"by the name that the driver prints":          {GPU{Model: "NVIDIA H100 80GB HBM3", Memory: 80 << 30}, 989},
		"by the name in a label of the node":          {GPU{Model: "NVIDIA-A100-SXM4-40GB"}, 312},
		"a longer name is another product":            {GPU{Model: "NVIDIA H200 NVL"}, 835},
		"and its PCIe card a third":                   {GPU{Model: "NVIDIA H100 PCIe"}, 756},
		"H200 is not H20":                             {GPU{Model: "NVIDIA H200"}, 989},
		"L40S is neither L40 nor L4":                  {GPU{Model: "NVIDIA L40S"}, 362},
		"A4000 is not A40, and goes by its memory":    {GPU{Model: "NVIDIA RTX A4000", Memory: 16 << 30}, 112},
		"a product that is not listed, by its memory": {GPU{Model: "Unheard Of 1", Memory: 24 << 30}, 168},
		"without any of it a GPU is the fastest":      {GPU{}, unknownTFLOPS},
		"other makers' products":                      {GPU{Model: "AMD Instinct MI300X"}, 1307},
		"one die of a package is a GPU":               {GPU{Model: "AMD Instinct MI250X"}, 191.5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.gpu.TFLOPS(); got != tc.want {
				t.Errorf("%v TFLOPS, want %v", got, tc.want)
			}
			g, err := NewGraph([]GPU{tc.gpu}, nil, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.TFLOPS(0); got != tc.want {
				t.Errorf("%v TFLOPS in a graph, want %v", got, tc.want)
			}
		})
	}
}
