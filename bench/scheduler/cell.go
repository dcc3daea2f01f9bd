// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/devcluster"
)

const (
	// settleLimit bounds the wait for what follows the last binding: metrics of
	// the attempt, deletions, events.
	settleLimit  = 30 * time.Second
	settlePoll   = 50 * time.Millisecond
	attemptsName = "scheduler_schedule_attempts_total"
	attemptName  = "scheduler_scheduling_attempt_duration_seconds"
	algoName     = "scheduler_scheduling_algorithm_duration_seconds"
	batchName    = "scheduler_batch_attempts_total"
	flushedName  = "scheduler_batch_cache_flushed_total"
	requestsName = "apiserver_request_total"
	heapName     = "go_memstats_heap_alloc_bytes"
)

// Cell is what was measured of one profile, workload and size of cluster.
type Cell struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Profile  string `json:"profile"`
	Repeat   int    `json:"repeat"`
	Pods     int    `json:"pods"`

	PodsPerSecond  float64 `json:"podsPerSecond"`  // in the window
	WindowSeconds  float64 `json:"windowSeconds"`  // from the first binding to the last
	FirstSeconds   float64 `json:"firstSeconds"`   // from its readiness to the first binding
	StartSeconds   float64 `json:"startSeconds"`   // from its start to its readiness
	CreateSeconds  float64 `json:"createSeconds"`  // making the pods, before the scheduler starts
	ElapsedSeconds float64 `json:"elapsedSeconds"` // all of the cell, cleaning included

	AttemptP50Ms    float64 `json:"attemptP50Ms"` // successful attempts, binding included
	AttemptP99Ms    float64 `json:"attemptP99Ms"`
	AttemptMeanMs   float64 `json:"attemptMeanMs"`
	AlgorithmP50Ms  float64 `json:"algorithmP50Ms"` // filtering and scoring alone
	AlgorithmP99Ms  float64 `json:"algorithmP99Ms"`
	AlgorithmMeanMs float64 `json:"algorithmMeanMs"`

	SchedulerCPUMs    float64 `json:"schedulerCPUMsPerPod"` // in the window
	ControlPlaneCPUMs float64 `json:"controlPlaneCPUMsPerPod"`
	SchedulerPeakMiB  float64 `json:"schedulerPeakMiB"`
	LiveHeapMiB       float64 `json:"liveHeapMiB"` // after a collection, with all pods bound
	// HoldCPU is the scheduler's CPU in ms a second with nothing to schedule; 0 without -hold.
	HoldCPU       float64 `json:"holdCPUMsPerSecond"`
	HostileWrites float64 `json:"hostileWritesPerSecond,omitempty"`

	// WatchRestarts is how often the measuring watch ended in the window; each
	// may have delayed what was seen of some bindings.
	WatchRestarts int `json:"watchRestarts"`

	WritesPerPod  float64            `json:"writesPerPod"`  // of pods and their subresources, done by the API server
	RefusedPerPod float64            `json:"refusedPerPod"` // the same, answered with an error: overload (429), conflicts
	EventsPerPod  float64            `json:"eventsPerPod"`
	Writes        map[string]float64 `json:"writes"` // "VERB resource code" -> requests

	Attempts     map[string]float64 `json:"attempts"`     // result -> attempts
	Batch        map[string]float64 `json:"batch"`        // result -> attempts to use batching
	BatchFlushed map[string]float64 `json:"batchFlushed"` // reason -> flushes
}

// cluster is a control plane with its nodes.
type cluster struct {
	*controlPlane
	kube  kubernetes.Interface
	dyn   dynamic.Interface
	nodes int
}

// plan is what a cell is to measure.
type plan struct {
	workload *workload
	profile  string
	repeat   int
	pods     int
	// profiles is how the names of the files begin for the scheduler's CPU
	// profile, over so long from its readiness, and for its heap profile after
	// that; such a cell's figures do not count.
	profiles      string
	profileWindow time.Duration
}

// cell measures one cell and leaves no pod behind.
func (c *cluster) cell(ctx context.Context, o *options, p *plan) (_ *Cell, err error) {
	begin := time.Now()
	out := &Cell{Nodes: c.nodes, Workload: p.workload.name, Profile: p.profile, Repeat: p.repeat, Pods: p.pods}
	config, err := configure(p.profile, o.QPS)
	if err != nil {
		return nil, err
	}
	defer func() {
		if ctx.Err() == nil { // else the control plane is about to go with all there is
			err = errors.Join(err, c.clean(ctx))
		}
		out.ElapsedSeconds = since(begin)
	}()
	if p.profile == profileHostile {
		a, err := startAttack(ctx, c.dyn, o.Hostile, o.Writes)
		if err != nil {
			return nil, fmt.Errorf("turn %d nodes hostile: %w", o.Hostile, err)
		}
		defer func() {
			rate, stopErr := a.stop(ctx)
			out.HostileWrites = rate
			err = errors.Join(err, stopErr)
		}()
	}
	if err := c.createPods(ctx, p.workload.sizes(p.pods, o.Seed), config.schedulerName); err != nil {
		return nil, err
	}
	out.CreateSeconds = since(begin)
	before, err := c.writes(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.schedule(ctx, o, p, config, out); err != nil {
		return nil, err
	}
	return out, c.countWrites(ctx, before, out)
}

func (c *cluster) createPods(ctx context.Context, gpus []int, scheduler string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i, n := range gpus {
		g.Go(func() error {
			_, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, newPod(i, n, scheduler), metav1.CreateOptions{})
			return err //nolint:wrapcheck // wrapped below
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the pods: %w", err)
	}
	return nil
}

// schedule runs a scheduler on the waiting pods until all are bound.
func (c *cluster) schedule(ctx context.Context, o *options, p *plan, config *configuration, out *Cell) (err error) {
	w, err := watchBindings(ctx, c.kube)
	if err != nil {
		return err
	}
	defer w.stop()
	log := &devcluster.Tail{File: o.log}
	start := time.Now()
	s, err := c.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: o.Scheduler, Config: config.yaml, ServiceAccount: systemNamespace + "/nvtopo-scheduler", Log: log,
	})
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
	profiling, _ := errgroup.WithContext(ctx)
	ready, err := client.waitReady(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	if p.profiles != "" {
		profiling.Go(func() error { return client.storeCPUProfile(ctx, p.profileWindow, p.profiles+".cpu.pprof") })
	}
	bound, err := collect(ctx, w, p.pods, o.Stall)
	used, cpuErr := cpu.stop()
	switch {
	case errors.Is(err, errStalled):
		return fmt.Errorf("%w: %s\n%s", err, refusal(ctx, c.kube), log)
	case err != nil || cpuErr != nil:
		return errors.Join(err, cpuErr)
	}
	out.WatchRestarts = w.restarts
	out.StartSeconds = ready.Sub(start).Seconds()
	out.window(ready, bound, used, o.Skip)
	peak, err := peakMemory(s.PID())
	if err != nil {
		return err
	}
	out.SchedulerPeakMiB = float64(peak) / (1 << 20)
	if err := errors.Join(out.scrape(ctx, client), profiling.Wait(), out.holdStill(ctx, o.Hold, s.PID()), out.measureHeap(ctx, client)); err != nil || p.profiles == "" {
		return err
	}
	return client.storeHeapProfile(ctx, p.profiles+".heap.pprof")
}

// holdStill measures what the scheduler uses with nothing to schedule.
func (out *Cell) holdStill(ctx context.Context, length time.Duration, pid int) error {
	if length == 0 {
		return nil
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	case <-time.After(length):
	}
	after, err := cpuTime(pid)
	out.HoldCPU = ms((after - before).Seconds()) / length.Seconds()
	return err
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

// window computes rate and CPU per pod from the first binding to the last, or from
// a later one if a share of them is to be skipped. What comes before the first is
// the start: reading caches, and our graphs, which readiness does not wait for.
func (out *Cell) window(ready time.Time, bound []time.Time, used samples, skip float64) {
	out.FirstSeconds = bound[0].Sub(ready).Seconds()
	bound = bound[int(skip*float64(len(bound)-1)):]
	pods, first, last := float64(len(bound)-1), bound[0], bound[len(bound)-1]
	out.WindowSeconds = last.Sub(first).Seconds()
	out.PodsPerSecond = pods / out.WindowSeconds
	from, to := used.at(first), used.at(last)
	out.SchedulerCPUMs = (to.scheduler - from.scheduler).Seconds() * 1e3 / pods
	out.ControlPlaneCPUMs = (to.controlPlane - from.controlPlane).Seconds() * 1e3 / pods
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

// writes counts the API server's writes of pods and events so far.
func (c *cluster) writes(ctx context.Context) (map[string]float64, error) {
	body, err := c.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	f, err := parseMetrics(bytes.NewReader(body), requestsName)
	if err != nil {
		return nil, err
	}
	return f.sums(requestsName, writeKey), nil
}

// writeKey names a write of a pod, of one of its subresources or of an event.
func writeKey(labels map[string]string) (string, bool) {
	resource, verb := labels["resource"], labels["verb"]
	switch verb {
	case "POST", "PUT", "PATCH", "APPLY":
	default:
		return "", false
	}
	if sub := labels["subresource"]; sub != "" && resource == "pods" {
		resource += "/" + sub
	}
	return verb + " " + resource + " " + labels["code"], resource == "events" || strings.HasPrefix(resource, "pods")
}

// countWrites sets what was written since before.
func (c *cluster) countWrites(ctx context.Context, before map[string]float64, out *Cell) error {
	after, err := c.writes(ctx)
	if err != nil {
		return err
	}
	out.Writes = map[string]float64{}
	for key, n := range after {
		n -= before[key]
		switch {
		case n == 0:
			continue
		case strings.Contains(key, " events "):
			out.EventsPerPod += n / float64(out.Pods)
		case !strings.Contains(key, " 2"):
			out.RefusedPerPod += n / float64(out.Pods)
		default:
			out.WritesPerPod += n / float64(out.Pods)
		}
		out.Writes[key] = n
	}
	return nil
}

// clean deletes pods and events and waits until the pods are gone, so that each
// cell starts from the same state.
func (c *cluster) clean(ctx context.Context) error {
	now, all := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}
	pods := c.kube.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.DeleteCollection(ctx, now, all); err != nil {
		return fmt.Errorf("delete the pods: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err //nolint:wrapcheck // wrapped below
		}
		return len(list.Items) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	if err := c.kube.EventsV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, now, all); err != nil {
		return fmt.Errorf("delete the events: %w", err)
	}
	return nil
}
