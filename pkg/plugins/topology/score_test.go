// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// TestScoreWeights: scores follow the weights.
func TestScoreWeights(t *testing.T) {
	p := &Plugin{narrowing: candidates.Narrowing{Order: nodeindex.DefaultOrder()}}
	best := nodeindex.Best{Ring: 300_000_000, Latency: 2_000, Lost: 200}
	tests := map[string]struct {
		ratings map[string]nodeindex.Offer // node -> its choice
		spare   map[string]nodeindex.Spare // node -> 0 unless it is here
		want    map[string]int64
	}{
		"the best ring, at no cost, has all points": {
			ratings: map[string]nodeindex.Offer{
				"best": {Ring: 300_000_000, Latency: 2_000, FreeAfter: 6},
				"pcie": {Ring: 24_000_000, Latency: 3_000, FreeAfter: 6},
			},
			// 80 + 20 * (0.4*0.08 + 0.3*2/3 + 0.3*1) = 80 + 20*0.532
			want: map[string]int64{"best": 100, "pcie": 90},
		},
		"what a choice breaks counts against it": {
			ratings: map[string]nodeindex.Offer{
				"whole":     {Lost: 200, FreeAfter: 7},
				"half-used": {Lost: 50, FreeAfter: 3},
			},
			// 80 + 20 * (0.4 + 0.3), and 20 * 0.3*0.75 more, and one point more for the best
			want: map[string]int64{"whole": 94, "half-used": 99},
		},
		"a tie goes to the tightest fit": {
			ratings: map[string]nodeindex.Offer{
				"loose": {FreeAfter: 7}, "tight": {FreeAfter: 0},
			},
			want: map[string]int64{"loose": 99, "tight": 100},
		},
		"equal nodes: the one whose leaf has the least to spare": {
			ratings: map[string]nodeindex.Offer{"emptier": {FreeAfter: 7}, "fuller": {FreeAfter: 7}},
			spare:   map[string]nodeindex.Spare{"emptier": 3<<26 | 5<<13 | 5, "fuller": 2<<26 | 9<<13 | 9},
			want:    map[string]int64{"emptier": 99, "fuller": 100},
		},
		"the tightest fit counts before what there is to spare": {
			ratings: map[string]nodeindex.Offer{"loose": {FreeAfter: 7}, "tight": {FreeAfter: 6}},
			spare:   map[string]nodeindex.Spare{"tight": nodeindex.Spare(nodeindex.NoSpare) - 1},
			want:    map[string]int64{"loose": 99, "tight": 100},
		},
		"no candidate has a usable graph": {
			ratings: map[string]nodeindex.Offer{}, want: map[string]int64{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var scores fwk.NodeScoreList
			for node, r := range tc.ratings {
				scores = append(scores, fwk.NodeScore{Name: node, Score: ranked(p.narrowing.Order.Weights.Raw(&r, &best), tc.spare[node])})
			}
			if status := p.NormalizeScore(t.Context(), framework.NewCycleState(), nil, scores); !status.IsSuccess() {
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

// TestNormalizedScoreBounds: normalized scores stay in bounds.
func TestNormalizedScoreBounds(t *testing.T) {
	p := &Plugin{}
	w := nodeindex.Weights{Bandwidth: 1, Latency: 1, Fragmentation: 1}
	best := nodeindex.Best{Ring: 1, Latency: 1}
	scores := fwk.NodeScoreList{
		{Score: ranked(w.Raw(&nodeindex.Offer{Ring: 1, Latency: 1, Lost: -1}, &best), 0)}, // a choice that frees nothing but rounding
		{Score: ranked(w.Raw(&nodeindex.Offer{Ring: 0, Latency: 1 << 40, Lost: 2, FreeAfter: 64}, &best), math.MaxUint32)},
		{Score: 0},
	}
	if status := p.NormalizeScore(t.Context(), framework.NewCycleState(), nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	for i, s := range scores {
		if s.Score < fwk.MinNodeScore || s.Score > fwk.MaxNodeScore {
			t.Errorf("score %d is %d, outside 0 to 100", i, s.Score)
		}
	}
}
