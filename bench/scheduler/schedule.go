// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/internal/devcluster"
)

// Names of the scheduler's metrics.
const (
	attemptsName = "scheduler_schedule_attempts_total"
	attemptName  = "scheduler_scheduling_attempt_duration_seconds"
	algoName     = "scheduler_scheduling_algorithm_duration_seconds"
	batchName    = "scheduler_batch_attempts_total"
	flushedName  = "scheduler_batch_cache_flushed_total"
	heapName     = "go_memstats_heap_alloc_bytes"
	nodesName    = "scheduler_nvtopo_nodes"
)

// schedule runs a scheduler on the waiting pods until all are bound.
func (c *cluster) schedule(ctx context.Context, o *options, p *plan, config *configuration, out *Cell) (err error) {
	w, err := watchBindings(ctx, c.kube)
	if err != nil {
		return err
	}
	defer w.stop()
	log := &devcluster.Tail{File: o.log}
	start := time.Now()
	s, err := c.StartScheduler(ctx, schedulerOptions(o, p, config, log))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	defer func() { err = errors.Join(err, s.Kill()) }()
	client, err := newSchedulerClient(c.RESTConfig(), s.Port())
	if err != nil {
		return err
	}
	defer client.close()

	cpu := startSampler(ctx, s.PID(), c.pid)
	defer cpu.cancel()
	meanwhile, _ := errgroup.WithContext(ctx)
	ready, err := client.waitReady(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	profile := func() {
		if p.profiles == "" {
			return
		}
		meanwhile.Go(func() error { return client.storeCPUProfile(ctx, p.profileWindow, p.profiles+".cpu.pprof") })
		meanwhile.Go(func() error { return c.storeCPUProfile(ctx, p.profileWindow, p.profiles+".api-server.cpu.pprof") })
	}
	first := p.workload.first(p.pods)
	if first == 0 {
		profile()
	}
	bound, err := collect(ctx, w, p.pods, o.Stall, func(n int) {
		if n == first && n > 0 {
			meanwhile.Go(func() error { return out.countGraphs(ctx, client) })
			profile()
		}
	})
	used, cpuErr := cpu.stop()
	switch {
	case errors.Is(err, errStalled):
		return fmt.Errorf("%w: %s\n%s", err, refusal(ctx, c.kube), log)
	case err != nil || cpuErr != nil:
		return errors.Join(err, cpuErr)
	}
	out.WatchRestarts = w.restarts
	out.StartSeconds = ready.Sub(start).Seconds()
	out.window(ready, bound, used, first)
	peak, err := proc.Peak(s.PID())
	if err != nil {
		return err
	}
	out.SchedulerPeakMiB = float64(peak) / (1 << 20)
	if err := errors.Join(out.scrape(ctx, client), out.scrapePlans(ctx, client), meanwhile.Wait(), out.holdStill(ctx, o.Hold, s.PID(), c.pid), out.measureHeap(ctx, client)); err != nil || p.profiles == "" {
		return err
	}
	return client.storeHeapProfile(ctx, p.profiles+".heap.pprof")
}

// schedulerOptions are those of the scheduler that a plan measures.
func schedulerOptions(o *options, p *plan, config *configuration, log *devcluster.Tail) devcluster.SchedulerOptions {
	return devcluster.SchedulerOptions{
		Binary: o.binary(p.profile), Config: config.yaml, ServiceAccount: systemNamespace + "/nvtopo-scheduler", Log: log,
	}
}

// holdStill measures what the scheduler, the control plane and this process use with
// nothing to schedule.
func (out *Cell) holdStill(ctx context.Context, length time.Duration, scheduler, controlPlane int) error {
	if length == 0 {
		return nil
	}
	processes := map[int]*float64{scheduler: &out.HoldCPU, controlPlane: &out.HoldControlPlaneCPU, os.Getpid(): &out.LoadCPU}
	before := map[int]time.Duration{}
	for pid := range processes {
		var err error
		if before[pid], err = proc.CPUTime(pid); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err() // the caller's own
	case <-time.After(length):
	}
	for pid, perSecond := range processes {
		after, err := proc.CPUTime(pid)
		if err != nil {
			return err
		}
		*perSecond = ms((after - before[pid]).Seconds()) / length.Seconds()
	}
	return nil
}

// measureHeap reads the live heap after a collection.
func (out *Cell) measureHeap(ctx context.Context, client *schedulerClient) error {
	if _, err := client.wait(ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return err
	}
	body, err := client.wait(ctx, "/metrics")
	if err != nil {
		return err
	}
	f, err := parseMetrics(bytes.NewReader(body), heapName)
	if err != nil {
		return err
	}
	for _, m := range f[heapName].GetMetric() {
		out.LiveHeapMiB = m.GetGauge().GetValue() / (1 << 20)
	}
	return nil
}

// countGraphs reads how many nodes' graphs count as the window begins.
func (out *Cell) countGraphs(ctx context.Context, client *schedulerClient) error {
	body, err := client.wait(ctx, "/metrics")
	if err != nil {
		return err
	}
	f, err := parseMetrics(bytes.NewReader(body), nodesName)
	if err != nil {
		return err
	}
	for _, m := range f[nodesName].GetMetric() {
		if labelsOf(m)["state"] == "counted" {
			out.GraphsRead = int(m.GetGauge().GetValue())
		}
	}
	return nil
}

// window computes rate and CPU per pod from one binding, by its number, to the last.
// What comes before the first is the start: reading caches, and our graphs, which
// readiness does not wait for.
func (out *Cell) window(ready time.Time, bound []time.Time, used samples, from int) {
	out.FirstSeconds = bound[0].Sub(ready).Seconds()
	begun := used.at(bound[0])
	out.StartCPUSeconds, out.StartControlPlaneCPUSeconds = begun.scheduler.Seconds(), (begun.controlPlane - used[0].controlPlane).Seconds()
	out.WindowFrom = from
	bound = bound[from:]
	pods, first, last := float64(len(bound)-1), bound[0], bound[len(bound)-1]
	out.WindowSeconds = last.Sub(first).Seconds()
	out.PodsPerSecond = pods / out.WindowSeconds
	begun, ended := used.at(first), used.at(last)
	out.SchedulerCPUMs = ms((ended.scheduler - begun.scheduler).Seconds()) / pods
	out.ControlPlaneCPUMs = ms((ended.controlPlane - begun.controlPlane).Seconds()) / pods
}

// scrape reads the scheduler's metrics once it has accounted for every pod: an
// attempt is observed a moment after its binding is seen.
func (out *Cell) scrape(ctx context.Context, client *schedulerClient) error {
	scheduled := map[string]string{"result": "scheduled"}
	var f families
	var seen float64
	err := wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (bool, error) {
		body, err := client.wait(ctx, "/metrics")
		if err != nil {
			return false, err
		}
		if f, err = parseMetrics(bytes.NewReader(body), attemptsName, attemptName, algoName, batchName, flushedName); err != nil {
			return false, err
		}
		seen = f.sums(attemptsName, byLabel("result"))["scheduled"]
		return seen >= float64(out.Pods), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d scheduled pods in the scheduler's metrics, which have %g: %w", out.Pods, seen, err)
	}
	out.Attempts = f.sums(attemptsName, byLabel("result"))
	out.Batch = f.sums(batchName, byLabel("result"))
	out.BatchFlushed = f.sums(flushedName, byLabel("reason"))
	attempt, algorithm := f.histogram(attemptName, scheduled), f.histogram(algoName, nil)
	out.AttemptP50Ms, out.AttemptP99Ms, out.AttemptMeanMs = ms(attempt.quantile(0.5)), ms(attempt.quantile(0.99)), ms(attempt.mean())
	out.AlgorithmP50Ms, out.AlgorithmP99Ms, out.AlgorithmMeanMs = ms(algorithm.quantile(0.5)), ms(algorithm.quantile(0.99)), ms(algorithm.mean())
	if attempt.count == 0 || algorithm.count == 0 {
		return errors.New("the scheduler's metrics have no latencies")
	}
	return nil
}

func ms(seconds float64) float64 { return seconds * 1e3 }
