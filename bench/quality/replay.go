// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// outcome is the results of a task's replays: by variant, then by seed.
type outcome [][]*sim.Result

// replayAll replays every task with every seed, workers at a time. The result does
// not depend on that number: each replay has a place of its own.
func replayAll(ctx context.Context, tasks []task, seeds []uint64, workers int, progress func(done, of int)) ([]outcome, error) {
	out := make([]outcome, len(tasks))
	for i := range tasks {
		out[i] = make(outcome, len(tasks[i].variants))
		for v := range out[i] {
			out[i][v] = make([]*sim.Result, len(seeds))
		}
	}
	var done atomic.Int64
	tables := &sim.Tables{}
	all := len(tasks) * len(seeds)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range tasks {
		for s, seed := range seeds {
			group.Go(func() error {
				if err := replayTask(ctx, &tasks[i], seed, tables, func(v int, r *sim.Result) { out[i][v][s] = r }); err != nil {
					return fmt.Errorf("%s, seed %d: %w", tasks[i].String(), seed, err)
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

// replayTask draws one trace and gives it to each variant.
func replayTask(ctx context.Context, t *task, seed uint64, tables *sim.Tables, put func(variant int, r *sim.Result)) error {
	jobs, err := t.source.jobs(seed)
	if err != nil {
		return err
	}
	for v := range t.variants {
		r, err := sim.Run(ctx, sim.Config{
			Nodes: t.nodes, Jobs: jobs, Policy: t.variants[v].policy, Load: t.Load, Seed: seed, WarmUp: sim.DefaultWarmUp,
			PodPolicy: t.policy, Residual: t.variants[v].residual, Tables: tables, Order: t.variants[v].order,
			MessageBytes: t.message, RunsByPlacement: t.RunsByPlacement,
		})
		if err != nil {
			return err
		}
		put(v, r)
	}
	return nil
}
