// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// TestHealthyChoice: the agent's own choice goes by health.
func TestHealthyChoice(t *testing.T) {
	// Pairs joined by a bridge: 0 and 1, 2 and 3.
	tests := map[string]struct {
		unhealthy, degraded []int
		offered, must       []int
		size                int
		want                []int
	}{
		"two of intact GPUs":                               {degraded: []int{0}, offered: []int{0, 1, 2, 3}, size: 2, want: []int{2, 3}},
		"one is the degraded one":                          {degraded: []int{3}, offered: []int{0, 1, 2, 3}, size: 1, want: []int{3}},
		"one is not the unhealthy one":                     {unhealthy: []int{0}, offered: []int{0, 1}, size: 1, want: []int{1}},
		"what kubelet has taken stays":                     {degraded: []int{0}, offered: []int{0, 1, 2, 3}, must: []int{0}, size: 2, want: []int{0, 1}},
		"degraded ones where there is no other way":        {degraded: []int{0, 2}, offered: []int{0, 1, 2}, size: 3, want: []int{0, 1, 2}},
		"unhealthy ones where kubelet offers nothing else": {unhealthy: []int{0, 1}, offered: []int{0, 1}, size: 2, want: []int{0, 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := machine.Lookup("a100-pcie-4-bridged")
			if err != nil {
				t.Fatal(err)
			}
			g, err := m.GraphFor("n")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range tc.unhealthy {
				g.GPUs[p].Unhealthy = "GPU is lost"
			}
			for _, p := range tc.degraded {
				g.GPUs[p].Degraded = "NVLink error"
			}
			ids := func(positions []int) []string {
				out := []string{}
				for _, p := range positions {
					out = append(out, g.GPUs[p].UUID)
				}
				return out
			}
			q := question.New("nvidia.com/gpu", ids(tc.offered), ids(tc.must), tc.size)
			got, ok := pickBest(nvtopo.NewTables(g, nvtopo.DefaultWeights()), &q)
			if !ok {
				t.Fatal("nothing was picked")
			}
			set, _ := g.Positions(got)
			if diff := cmp.Diff(tc.want, set.Positions()); diff != "" {
				t.Errorf("picked (-want,+got):\n%s", diff)
			}
		})
	}
}
