// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// TestModels: what is used and free is summed up by GPU model, which is spelled as in bills and price books.
func TestModels(t *testing.T) {
	const h100 = "NVIDIA-H100-80GB-HBM3"
	tests := map[string]struct {
		change func(c *viewtest.Cluster)
		want   []string // model: nodes, GPUs, used, free, whole nodes, GPUs of the largest group
	}{
		"a stale node has nothing free": {
			want: []string{"NVIDIA-A100-80GB-PCIe: 1 4 1 3 0 0", h100 + ": 4 32 12 14 0 6", "Tesla-V100-SXM2-32GB: 1 8 4 3 0 3"},
		},
		"a cordoned node has nothing free": {
			change: func(c *viewtest.Cluster) { c.Nodes[0].Spec.Unschedulable, c.Nodes[1].Spec.Unschedulable = true, true },
			want:   []string{"NVIDIA-A100-80GB-PCIe: 1 4 1 3 0 0", h100 + ": 4 32 12 2 0 2", "Tesla-V100-SXM2-32GB: 1 8 4 3 0 3"},
		},
		"without pods machines are whole": {
			change: func(c *viewtest.Cluster) { c.Pods = nil },
			want:   []string{"NVIDIA-A100-80GB-PCIe: 1 4 0 4 1 4", h100 + ": 4 32 0 24 3 8", "Tesla-V100-SXM2-32GB: 1 8 0 7 0 7"},
		},
		"a machine with two models is mixed": {
			change: func(c *viewtest.Cluster) { c.Topology("h100-0").Spec.GPUs[0].Model = "NVIDIA H200" },
			want: []string{
				"NVIDIA-A100-80GB-PCIe: 1 4 1 3 0 0", h100 + ": 3 24 10 8 0 6", "Tesla-V100-SXM2-32GB: 1 8 4 3 0 3", "mixed: 1 8 2 6 0 6",
			},
		},
		"a node without a graph is of no model": {
			change: func(c *viewtest.Cluster) { c.Topologies = nil },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := sample(t)
			if tc.change != nil {
				tc.change(c)
			}
			v := clusterview.Of(&c.Objects, clusterview.Options{})
			var got []string
			free := 0
			for i := range v.Models {
				m := &v.Models[i]
				largest := 0
				if m.Largest != nil {
					largest = len(m.Largest.GPUs)
				}
				free += m.Supply.FreeGPUs
				got = append(got, fmt.Sprintf("%s: %d %d %d %d %d %d", m.Model, m.Supply.Nodes, m.Supply.GPUs, m.Supply.UsedGPUs, m.Supply.FreeGPUs, m.WholeNodes, largest))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("models (-want,+got):\n%s", diff)
			}
			if free != v.Supply.FreeGPUs {
				t.Errorf("%d GPUs are free by model, want %d", free, v.Supply.FreeGPUs)
			}
		})
	}
}
