// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

func TestScoresFollowTheWeights(t *testing.T) {
	p := &Plugin{bandwidthWeight: 0.4, latencyWeight: 0.3, fragmentationWeight: 0.3}
	best := &nodestate.Cycle{BestRing: 300_000_000, BestLatency: 2_000}
	tests := map[string]struct {
		ratings map[string]nodestate.Rating // node -> its choice
		cycle   *nodestate.Cycle
		want    map[string]int64
	}{
		"the best ring, at no cost, has all points": {
			ratings: map[string]nodestate.Rating{
				"best": {GPUs: 2, Ring: 300_000_000, Latency: 2_000, FreeAfter: 6},
				"pcie": {GPUs: 2, Ring: 24_000_000, Latency: 3_000, FreeAfter: 6},
			},
			// 0.4*0.08 + 0.3*2/3 + 0.3*1 = 0.532
			want: map[string]int64{"best": 100, "pcie": 53},
		},
		"what a choice breaks counts against it": {
			ratings: map[string]nodestate.Rating{
				"whole":     {GPUs: 1, Lost: 0.5, FreeAfter: 7},
				"half-used": {GPUs: 1, Lost: 0.1, FreeAfter: 3},
			},
			// 1 - 0.3*0.5 and 1 - 0.3*0.1, and one more for the best
			want: map[string]int64{"whole": 85, "half-used": 98},
		},
		"a tie goes to the tightest fit": {
			ratings: map[string]nodestate.Rating{
				"loose": {GPUs: 1, FreeAfter: 7}, "tight": {GPUs: 1, FreeAfter: 0},
			},
			want: map[string]int64{"loose": 99, "tight": 100},
		},
		"no candidate has a usable graph": {
			ratings: map[string]nodestate.Rating{}, cycle: &nodestate.Cycle{}, want: map[string]int64{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cycle := tc.cycle
			if cycle == nil {
				cycle = best
			}
			var scores fwk.NodeScoreList
			for node, r := range tc.ratings {
				scores = append(scores, fwk.NodeScore{Name: node, Score: p.raw(r, cycle)})
			}
			if status := p.NormalizeScore(t.Context(), nil, nil, scores); !status.IsSuccess() {
				t.Fatal(status)
			}
			got := map[string]int64{}
			for _, s := range scores {
				got[s.Name] = s.Score
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scores (-want,+got):\n%s", diff)
			}
		})
	}
}

func TestNormalizedScoresStayInBounds(t *testing.T) {
	p := &Plugin{bandwidthWeight: 1, latencyWeight: 1, fragmentationWeight: 1}
	cycle := &nodestate.Cycle{BestRing: 1, BestLatency: 1}
	scores := fwk.NodeScoreList{
		{Score: p.raw(nodestate.Rating{GPUs: 2, Ring: 1, Latency: 1, Lost: -1}, cycle)}, // a choice that frees nothing but rounding
		{Score: p.raw(nodestate.Rating{GPUs: 2, Ring: 0, Latency: 1 << 40, Lost: 2, FreeAfter: 64}, cycle)},
		{Score: 0},
	}
	if status := p.NormalizeScore(t.Context(), nil, nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	for i, s := range scores {
		if s.Score < fwk.MinNodeScore || s.Score > fwk.MaxNodeScore {
			t.Errorf("score %d is %d, outside 0 to 100", i, s.Score)
		}
	}
}
