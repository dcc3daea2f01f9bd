// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

func TestAlignmentScore(t *testing.T) {
	tests := map[string]struct {
		bonus, penalty int64
		alignment      placement.Alignment
		want           int64
	}{
		"one node that has everything gets the bonus":      {50, 20, placement.Alignment{Nodes: 1, Local: true}, 100},
		"CPUs from elsewhere count as one more node":       {50, 20, placement.Alignment{Nodes: 1}, 30},
		"two nodes take the penalty":                       {50, 20, placement.Alignment{Nodes: 2, Local: true}, 30},
		"four nodes go no lower than 0":                    {50, 20, placement.Alignment{Nodes: 4, Local: true}, 0},
		"the bonus goes no higher than 100":                {80, 20, placement.Alignment{Nodes: 1, Local: true}, 100},
		"without bonus and penalty everything is as good":  {0, 0, placement.Alignment{Nodes: 3}, 50},
		"a small penalty leaves a difference between them": {50, 5, placement.Alignment{Nodes: 2}, 40},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &Plugin{sameNUMABonus: tc.bonus, crossNUMAPenalty: tc.penalty}
			if got := p.score(tc.alignment); got != tc.want {
				t.Errorf("score %d, want %d", got, tc.want)
			}
		})
	}
}
