// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

const (
	// block is how many pods are scheduled between two rounds of confirmations:
	// about as many as are between Reserve and the informer at 300 pods a second.
	block = 32
	// sampledCycles is the share of cycles, in per cent, whose plugins the
	// scheduler times one by one.
	sampledCycles = 10
)

// measurement is what one repeat of one profile took.
type measurement struct {
	Latencies []time.Duration // per pod, as the clock on the wall has it
	CPU       time.Duration   // of the process while pods were scheduled, garbage collection included
	Mallocs   uint64
	Bytes     uint64
	Evaluated int // nodes that were filtered, over all pods
	Feasible  int
	Hints     int // cycles that took batching's hint
	Retries   int // cycles after PostFilter asked for another
	profile   []byte
}

// pods is how many were scheduled.
func (m *measurement) pods() float64 { return float64(len(m.Latencies)) }

// wall is the mean µs per pod.
func (m *measurement) wall() float64 {
	var sum time.Duration
	for _, d := range m.Latencies {
		sum += d
	}
	return micros(sum) / m.pods()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measure schedules the pods on a fresh scheduler and checks the outcome.
func measure(ctx context.Context, p profile, c *cluster, pods []*v1.Pod, labels pprof.LabelSet) (m *measurement, err error) {
	r, err := newRig(ctx, p.config, c, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	for _, pod := range pods {
		r.SchedulingQueue.Add(r.logger, pod)
	}
	runtime.GC() // what starting the scheduler left is not the cycles' to collect
	hints := hintsUsed(r.framework.ProfileName())
	var cpu bytes.Buffer
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return nil, fmt.Errorf("start the CPU profile: %w", err)
	}
	m, placed, err := r.scheduleAll(ctx, len(pods), labels)
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	m.profile, m.Hints = cpu.Bytes(), hintsUsed(r.framework.ProfileName())-hints
	return m, verify(c, pods, placed, r.state != nil)
}

// scheduleAll takes every pod of the queue through a cycle, in blocks.
func (r *rig) scheduleAll(ctx context.Context, count int, labels pprof.LabelSet) (*measurement, []placement, error) {
	m := &measurement{Latencies: make([]time.Duration, 0, count)}
	placed := make([]placement, 0, count)
	labelled := pprof.WithLabels(ctx, labels)
	var before, after runtime.MemStats
	for len(placed) < count {
		first := len(placed)
		runtime.ReadMemStats(&before)
		busy := cpuTime()
		for len(placed) < min(count, first+block) {
			p, err := r.scheduleOne(ctx, labelled, m)
			if err != nil {
				return nil, nil, err
			}
			placed = append(placed, p)
		}
		m.CPU += cpuTime() - busy
		runtime.ReadMemStats(&after)
		m.Mallocs += after.Mallocs - before.Mallocs
		m.Bytes += after.TotalAlloc - before.TotalAlloc
		if err := r.confirm(ctx, placed[first:]); err != nil {
			return nil, nil, err
		}
	}
	return m, placed, nil
}

// scheduleOne does what Scheduler.ScheduleOne does before it binds. The time
// between the labels is the cycle's; goroutines it starts inherit the labels.
func (r *rig) scheduleOne(ctx, labelled context.Context, m *measurement) (placement, error) {
	info, err := r.NextPod(r.logger)
	if err != nil {
		return placement{}, fmt.Errorf("next pod: %w", err)
	}
	start := time.Now()
	pprof.SetGoroutineLabels(labelled)
	assumed, result, err := r.cycle(ctx, info)
	if retry := (&framework.FitError{}); errors.As(err, &retry) {
		// PostFilter widened what the next cycle may look at, or nothing fits.
		m.Retries++
		assumed, result, err = r.cycle(ctx, info)
	}
	pprof.SetGoroutineLabels(ctx)
	m.Latencies = append(m.Latencies, time.Since(start))
	if err != nil {
		return placement{}, fmt.Errorf("schedule pod %s: %w", info.Pod.Name, err)
	}
	m.Evaluated += result.EvaluatedNodes
	m.Feasible += result.FeasibleNodes
	r.SchedulingQueue.Done(assumed.UID)
	p := placement{pod: assumed}
	if r.state != nil {
		p.alloc = r.state.Attempt(assumed.UID, assumed.Spec.NodeName).Pending()
	}
	return p, nil
}

// cycle is one scheduling cycle; a pod that fits nowhere gets its PostFilter.
func (r *rig) cycle(ctx context.Context, info *framework.QueuedPodInfo) (*v1.Pod, scheduler.ScheduleResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state := framework.NewCycleState()
	state.SetRecordPluginMetrics(rand.IntN(100) < sampledCycles)
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	result, err := r.SchedulePod(ctx, r.framework, state, info.Pod)
	if err != nil {
		if fit := (&framework.FitError{}); errors.As(err, &fit) {
			r.framework.RunPostFilterPlugins(ctx, state, info.Pod, fit.Diagnosis.NodeToStatus)
		}
		return nil, result, err
	}
	assumed := info.DeepCopy().Pod
	assumed.Spec.NodeName = result.SuggestedHost
	if err := r.Cache.AssumePod(r.logger, assumed); err != nil {
		return nil, result, fmt.Errorf("assume: %w", err)
	}
	r.SchedulingQueue.DeleteNominatedPodIfExists(assumed)
	if s := r.framework.RunReservePluginsReserve(ctx, state, assumed, result.SuggestedHost); !s.IsSuccess() {
		return nil, result, fmt.Errorf("reserve: %w", s.AsError())
	}
	if s := r.framework.RunPermitPlugins(ctx, state, assumed, result.SuggestedHost); !s.IsSuccess() {
		return nil, result, fmt.Errorf("permit: %w", s.AsError())
	}
	return assumed, result, nil
}

// verify checks that every pod has a node with room for it and that no GPU was
// given to two pods.
func verify(c *cluster, pods []*v1.Pod, placed []placement, chosen bool) error {
	if len(placed) != len(pods) {
		return fmt.Errorf("%d of %d pods got a node", len(placed), len(pods))
	}
	left := map[string]int{} // node name -> GPUs
	for _, n := range c.nodes {
		q := n.Status.Allocatable[gpuResource]
		left[n.Name] = int(q.Value())
	}
	owner := map[string]string{} // GPU -> pod name
	for _, p := range placed {
		n := gpusOf(p.pod)
		if left[p.pod.Spec.NodeName] -= n; left[p.pod.Spec.NodeName] < 0 {
			return fmt.Errorf("node %q was given more pods than it has GPUs, the last is %s", p.pod.Spec.NodeName, p.pod.Name)
		}
		if n == 0 || !chosen {
			continue
		}
		if p.alloc == nil {
			return fmt.Errorf("no GPUs were chosen for pod %s", p.pod.Name)
		}
		ids := p.alloc.GPUs(gpuResource)
		if len(ids) != n {
			return fmt.Errorf("pod %s asked for %d GPUs and was given %v", p.pod.Name, n, ids)
		}
		for _, id := range ids {
			if other, taken := owner[id]; taken {
				return fmt.Errorf("GPU %s was given to pods %s and %s", id, other, p.pod.Name)
			}
			owner[id] = p.pod.Name
		}
	}
	return nil
}

// hintsUsed reads how many cycles of a profile took batching's hint so far.
func hintsUsed(profile string) int {
	v, err := testutil.GetCounterMetricValue(metrics.BatchAttemptStats.WithLabelValues(profile, metrics.BatchAttemptHintUsed))
	if err != nil {
		return 0
	}
	return int(v)
}

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
