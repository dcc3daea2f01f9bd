// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestNodeClosing: nodes are closed for a gang.
func TestNodeClosing(t *testing.T) {
	trace := jobs(
		// Four nodes are taken. On the last one two GPUs are free, and four from 40 on.
		[4]float64{0, 30, 8, 1}, [4]float64{0, 60, 8, 1}, [4]float64{0, 60, 8, 1}, [4]float64{0, 90, 4, 1}, [4]float64{0, 40, 2, 1},
		[4]float64{5, 10, 8, 2}, [4]float64{20, 5, 2, 1}, [4]float64{31, 5, 8, 1})
	cases := map[string]struct {
		after     float64
		wantNodes [][]int // by job
		wantStart []float64
	}{
		"never": {
			wantNodes: [][]int{{0}, {2}, {1}, {3}, {3}, {0, 2}, {3}, {0}}, wantStart: []float64{0, 0, 0, 0, 0, 60, 20, 31},
		},
		// A younger job waits for a node of the other rack, where the gang finds room first.
		"the rack where most is free": {
			after: 10, wantNodes: [][]int{{0}, {2}, {1}, {3}, {3}, {0, 2}, {0}, {0}}, wantStart: []float64{0, 0, 0, 0, 0, 60, 30, 35},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := twoRacks(t, 2)
			c.Jobs, c.GangPolicy, c.DrainAfterS = trace, Ours, tc.after
			_, seen := watched(t, c)
			nodes, starts := nodesOf(seen, len(trace))
			if diff := gocmp.Diff(tc.wantNodes, nodes); diff != "" {
				t.Errorf("nodes by job (-want,+got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.wantStart, starts); diff != "" {
				t.Errorf("starts by job (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestWholeNodeGang: single pods ask for nine tenths of the cluster, so that a
// gang of eight whole nodes finds no room for as long as they may go past it. It starts within
// drain-after and the longest job, or if pods that came before it begin later than drain-after,
// within the longest job from then on.
func TestWholeNodeGang(t *testing.T) {
	const (
		after, longest = 1800, 7200
		seeds, gangs   = 30, 3
	)
	starved, behind, most := 0, 0, 0.0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := twoRacks(t, 10)
		c.GangPolicy, c.DrainAfterS = Ours, after
		for range 6000 {
			c.Jobs = append(c.Jobs, Job{
				ArrivalS: rng.Float64(), DurationS: min(longest, 60+rng.ExpFloat64()*2400), GPUs: []int{1, 1, 2, 4}[rng.IntN(4)], Pods: 1,
			})
		}
		var work, last float64
		for i := range c.Jobs {
			work += c.Jobs[i].work()
		}
		last = work / (0.9 * 8 * float64(len(c.Nodes)))
		for i := range c.Jobs {
			c.Jobs[i].ArrivalS *= last
		}
		first := len(c.Jobs)
		for i := range gangs {
			c.Jobs = append(c.Jobs, Job{ArrivalS: last * (0.2 + 0.25*float64(i)), DurationS: 3600, GPUs: 8, Pods: 8})
		}
		seen := replayed(t, &c)
		without := c
		without.DrainAfterS = 0
		seenWithout := replayed(t, &without)
		for i := range gangs {
			wait, older := waitOf(&c, seen, first+i)
			if most = max(most, wait); older > after { // it was there before, and kept waiting, too
				behind++
				wait -= older - after
			}
			if wait > after+longest {
				t.Errorf("seed %d, gang %d: it waited for %.0f s, want at most %d", seed, i, wait, after+longest)
			}
			if wait, _ = waitOf(&without, seenWithout, first+i); wait > after+longest {
				starved++
			}
		}
	}
	t.Logf("%d gangs wait for at most %.0f s, %d of them behind older pods; without draining %d of them wait for longer than %d s",
		seeds*gangs, most, behind, starved, after+longest)
	if starved == 0 {
		t.Error("no gang waits too long without draining, so this shows nothing")
	}
}

// waitOf is how long a job waited, and after how long the last single pod began that had come
// before it.
func waitOf(c *Config, seen []Placement, job int) (wait, older float64) {
	zero := c.Jobs[0].ArrivalS
	for i := range c.Jobs {
		zero = min(zero, c.Jobs[i].ArrivalS)
	}
	came := c.Jobs[job].ArrivalS - zero
	for _, p := range seen {
		switch {
		case p.Job == job:
			wait = p.StartS - came
		case c.Jobs[p.Job].Pods == 1 && c.Jobs[p.Job].ArrivalS < c.Jobs[job].ArrivalS:
			older = max(older, p.StartS-came)
		}
	}
	return wait, older
}

func replayed(t *testing.T, c *Config) []Placement {
	t.Helper()
	result, seen := watched(t, *c)
	checkHistory(t, c, result, seen)
	return seen
}
