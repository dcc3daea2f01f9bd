// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"testing"
)

// TestTrials: orders that are tried keep the rules of a replay, and send pods where they say.
func TestTrials(t *testing.T) {
	nodes := mixedCluster(t)
	for _, name := range Trials() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				c := Config{Nodes: nodes, Jobs: randomJobs(rand.New(rand.NewPCG(seed, 1)), 150), Policy: name, Seed: seed}
				r, seen := watched(t, c)
				checkHistory(t, &c, r, seen)
			}
		})
	}
	// A fast machine of four beside a slow one of eight: single GPUs go to the slow one, until pods
	// that only it can take want most of it.
	fleet := Config{Nodes: clusterOf(t, "gb200-tray", "l40s-8")}
	cases := map[string]struct {
		policy string
		jobs   []Job
		want   []int
	}{
		"the slow machine": {"trial:guarded", jobs([4]float64{0, 9, 1, 1}, [4]float64{1, 9, 2, 1}), []int{1, 0}},
		"which a larger pod waits for": {
			"trial:guarded", jobs([4]float64{0, 9, 1, 1}, [4]float64{1, 9, 8, 1}, [4]float64{2, 9, 1, 1}), []int{1, 0, 1},
		},
		"and without the guard nobody cares": {
			"trial:slow-singles", jobs([4]float64{0, 9, 1, 1}, [4]float64{1, 9, 8, 1}, [4]float64{2, 9, 1, 1}), []int{1, 1, 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := fleet
			c.Policy, c.Jobs = tc.policy, tc.jobs
			_, seen := watched(t, c)
			for i, p := range seen {
				if p.Node != tc.want[i] {
					t.Errorf("the pod that started as number %d is on node %d, want %d", i, p.Node, tc.want[i])
				}
			}
		})
	}
}
