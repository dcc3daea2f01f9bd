// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// TestScoreSize: the size of scores does not grow with the cluster. Equal nodes are counted, and a few of
// them named.
func TestScoreSize(t *testing.T) {
	for name, tc := range map[string]struct{ best, others, wantNamed int }{
		"no node":                 {0, 0, 0},
		"one of few":              {1, 3, 4},
		"many that are equal":     {5000, 10, whatif.MaxCandidates},
		"few among many that fit": {2, 5000, whatif.MaxCandidates},
	} {
		t.Run(name, func(t *testing.T) {
			var of []fwk.NodePluginScores
			for i := range tc.others {
				of = append(of, fwk.NodePluginScores{Name: fmt.Sprintf("a-%04d", i), TotalScore: 1})
			}
			for i := range tc.best {
				of = append(of, fwk.NodePluginScores{Name: fmt.Sprintf("b-%04d", i), TotalScore: 2})
			}
			s := newScores()
			s.set("u", of)
			got := s.of("u")
			if got.Equal != tc.best || len(got.Candidates) != tc.wantNamed {
				t.Fatalf("%d equal, %d named, want %d and %d", got.Equal, len(got.Candidates), tc.best, tc.wantNamed)
			}
			if tc.best > 0 && got.Candidates[0] != (whatif.Candidate{Node: "b-0000", Score: 2}) {
				t.Errorf("the best is %+v", got.Candidates[0])
			}
		})
	}
}
