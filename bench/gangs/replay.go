// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/bench/internal/threadtime"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// warmUp is the share of the jobs that are not counted.
const warmUp = 0.15

// outcome is the results of a task's replays: by variant, then by seed.
type outcome [][]*sim.Result

// replayAll replays every task with every seed and variant, some at a time. The result does
// not depend on how many: each replay has a place of its own.
func replayAll(ctx context.Context, o *options, tasks []task, plans *planTimes, progress func(done, of int)) ([]outcome, error) {
	out := make([]outcome, len(tasks))
	for i := range tasks {
		out[i] = make(outcome, len(tasks[i].variants))
		for v := range out[i] {
			out[i][v] = make([]*sim.Result, len(o.seeds))
		}
	}
	var done atomic.Int64
	all := len(tasks) * len(o.seeds)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.workers)
	for i := range tasks {
		for s, seed := range o.seeds {
			group.Go(func() error {
				t := &tasks[i]
				jobs := t.mix.jobs(t.jobs, seed)
				for v := range t.variants {
					r, err := t.replay(ctx, jobs, t.variants[v], plans)
					if err != nil {
						return fmt.Errorf("%s, %s, seed %d: %w", t.Cluster, t.String(), seed, err)
					}
					out[i][v][s] = r
				}
				progress(int(done.Add(1)), all)
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

func (t *task) replay(ctx context.Context, jobs []sim.Job, v Variant, plans *planTimes) (*sim.Result, error) {
	c := sim.Config{
		Nodes: t.on.nodes, Fabric: t.on.tree, Jobs: jobs, Load: t.Load, WarmUp: warmUp, PodPolicy: t.policy,
		GangPolicy: v.Policy, PatienceS: v.Patience, MessageBytes: t.message,
	}
	if t.timed && v == ours(0) {
		// The time of a thread advances only while it runs, however busy the machine is.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		taken := map[int]report.Sample{}
		c.Planning = func(pods int) func(bool) {
			start := threadtime.Now()
			return func(placed bool) {
				if placed {
					taken[pods] = append(taken[pods], float64(threadtime.Now()-start))
				}
			}
		}
		defer plans.add(taken)
	}
	return sim.Run(ctx, c)
}

// planTimes collects the durations of plans, in ns, by the pods of the gang.
type planTimes struct {
	mu    sync.Mutex
	taken map[int]report.Sample // guarded by mu
}

func (p *planTimes) add(taken map[int]report.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = map[int]report.Sample{}
	}
	for pods, sample := range taken {
		p.taken[pods] = append(p.taken[pods], sample...)
	}
}

// PlanTime is the durations of plans for gangs of one size.
type PlanTime struct {
	Pods  int     `json:"pods"`
	Plans int     `json:"plans"`
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	MaxMs float64 `json:"maxMs"`
}

func (p *planTimes) summary() (out []PlanTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pods := range slices.Sorted(maps.Keys(p.taken)) {
		s := p.taken[pods]
		out = append(out, PlanTime{pods, len(s), s.Quantile(0.5) / 1e6, s.Quantile(0.99) / 1e6, s.Max() / 1e6})
	}
	return out
}
