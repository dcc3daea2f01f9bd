// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"strconv"
	"testing"
)

// BenchmarkNextRound decides on 640 nodes of which half the GPUs are used.
func BenchmarkNextRound(b *testing.B) {
	build := func(b *testing.B, used int) *testEnv {
		b.Helper()
		w := newTestEnv(b)
		for i := range 640 {
			name := "n" + strconv.Itoa(i)
			w.node(name, "hgx-h200", map[string]string{rackLabel: "r" + strconv.Itoa(i/16)})
			for j := range used {
				w.pod(name+"-"+strconv.Itoa(j), name, nil, j)
			}
		}
		return w
	}
	for name, tc := range map[string]struct{ used, jobs, pods, gpus int }{
		"one job":                {used: 4, jobs: 1, pods: 1, gpus: 1},
		"1000 jobs":              {used: 4, jobs: 1000, pods: 1, gpus: 1},
		"1000 without a place":   {used: 4, jobs: 1000, pods: 1, gpus: 8},
		"a gang of 64":           {used: 4, jobs: 1, pods: 64, gpus: 4},
		"16 gangs of 16":         {used: 4, jobs: 16, pods: 16, gpus: 4},
		"a gang without a place": {used: 4, jobs: 1, pods: 64, gpus: 8},
	} {
		b.Run(name, func(b *testing.B) {
			w := build(b, tc.used)
			for i := range tc.jobs {
				name := "job" + strconv.Itoa(i)
				var annotations map[string]string
				if tc.pods > 1 {
					annotations = gangOf(name, tc.pods)
				}
				w.Workloads = append(w.Workloads, *job(name, tc.pods, tc.gpus, annotations))
			}
			g := NewGraphs()
			NextRound(&w.World, g) // reads the topologies
			for b.Loop() {
				if steps, _ := NextRound(&w.World, g); len(steps) != tc.jobs {
					b.Fatalf("%d answers, want %d", len(steps), tc.jobs)
				}
			}
		})
	}
}
