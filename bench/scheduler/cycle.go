// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	pprofile "github.com/google/pprof/profile"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const (
	// block is the number of pods scheduled between two rounds of confirmations: about
	// as many as are between Reserve and the informer at 300 pods a second.
	block = 32
	// sampledCycles is the share of cycles, in per cent, whose plugins the
	// scheduler times one by one.
	sampledCycles = 10
	// ours is the prefix of the functions of the project's packages; the benchmark's
	// own are main's.
	ours = "github.com/nvtopo/nvtopo/pkg/"
	// cycleLabel marks the samples of scheduling cycles; its value names the series.
	cycleLabel = "cycle"
)

// cycles measures the scheduling cycle alone on a simulated cluster.
type cycles struct {
	*simulated
	o    *options
	keep []*pprofile.Profile // of all profiles but the first, with -cpuprofile
}

// runCycle measures all cells and the additional parts.
func runCycle(ctx context.Context, o *options, res *Result, progress io.Writer) ([]*report.Table, error) {
	var tables []*report.Table
	if o.cycles {
		kinds, err := fleet.Kinds()
		if err != nil {
			return nil, err
		}
		b := &cycles{o: o}
		for _, nodes := range o.Nodes {
			if b.simulated, err = simulate(nodes, nil, kinds...); err != nil {
				return nil, err
			}
			cells, err := runCells(ctx, o, nodes, b, progress)
			if err != nil {
				return nil, fmt.Errorf("%d nodes: %w", nodes, err)
			}
			res.Cells = append(res.Cells, cells...)
		}
		g, err := o.group(res.Cells)
		if err := errors.Join(err, writeProfile(o.cpuProfile, b.keep)); err != nil {
			return nil, err
		}
		tables = o.cycleTables(g)
	}
	for _, part := range []struct {
		chosen bool
		run    func(context.Context, *options, *Result, io.Writer) (*report.Table, error)
	}{{o.latency, latencies}, {o.plansAlone, planning}, {o.beside, besideGangs}} {
		if !part.chosen {
			continue
		}
		t, err := part.run(ctx, o, res, progress)
		if err != nil {
			return tables, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measure schedules the pods on a fresh scheduler and checks the outcome.
func (c *cycles) measure(ctx context.Context, p *plan) (*Cell, error) {
	config, err := findProfile(p.profile).decoded()
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, config, c.simulated, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	out := &Cell{Nodes: p.nodes, Workload: p.workload.name, Profile: p.profile, Repeat: p.repeat, Pods: p.pods, Cycle: &Cycle{}}
	pods := p.workload.pods(p.pods, c.o.Seed, r.framework.ProfileName())
	for _, pod := range pods {
		r.SchedulingQueue.Add(r.logger, pod)
	}
	runtime.GC() // the start's garbage is not collected in the cycles
	hints := hintsUsed(r.framework.ProfileName())
	var cpu bytes.Buffer
	if err := pprof.StartCPUProfile(&cpu); err != nil {
		return nil, fmt.Errorf("start the CPU profile: %w", err)
	}
	placed, err := r.scheduleAll(ctx, out, pprof.Labels(cycleLabel, key{p.nodes, p.workload.name, p.profile}.String()))
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	out.Hints = hintsUsed(r.framework.ProfileName()) - hints
	shares, err := pprofile.Parse(&cpu)
	if err != nil {
		return nil, fmt.Errorf("parse the CPU profile: %w", err)
	}
	out.readShares(shares)
	if c.o.cpuProfile != "" && p.profile != c.o.Profiles[0] {
		c.keep = append(c.keep, shares)
	}
	return out, verify(c.simulated, pods, placed, r.state != nil)
}

// scheduleAll runs a cycle for every pod of the queue, in blocks.
func (r *rig) scheduleAll(ctx context.Context, out *Cell, labels pprof.LabelSet) ([]placement, error) {
	placed, took := make([]placement, 0, out.Pods), make(report.Sample, 0, out.Pods)
	labelled := pprof.WithLabels(ctx, labels)
	pods := float64(out.Pods)
	var before, after runtime.MemStats
	for len(placed) < out.Pods {
		first := len(placed)
		runtime.ReadMemStats(&before)
		busy := cpuTime()
		for len(placed) < min(out.Pods, first+block) {
			p, d, err := r.scheduleOne(ctx, labelled, out)
			if err != nil {
				return nil, err
			}
			placed, took = append(placed, p), append(took, micros(d))
		}
		out.CPU += micros(cpuTime()-busy) / pods
		runtime.ReadMemStats(&after)
		out.Mallocs += float64(after.Mallocs-before.Mallocs) / pods
		out.KiB += float64(after.TotalAlloc-before.TotalAlloc) / 1024 / pods
		if err := r.confirm(ctx, placed[first:]); err != nil {
			return nil, err
		}
	}
	out.Wall, out.P50, out.P99 = took.Mean(), took.Quantile(0.5), took.Quantile(0.99)
	return placed, nil
}

// scheduleOne does the part of Scheduler.ScheduleOne before the binding. The time
// between the labels is the cycle's; goroutines it starts inherit the labels.
func (r *rig) scheduleOne(ctx, labelled context.Context, out *Cell) (placement, time.Duration, error) {
	info, err := r.NextPod(r.logger)
	if err != nil {
		return placement{}, 0, fmt.Errorf("next pod: %w", err)
	}
	start := time.Now()
	pprof.SetGoroutineLabels(labelled)
	assumed, result, err := r.cycle(ctx, info)
	if retry := (&framework.FitError{}); errors.As(err, &retry) {
		// PostFilter widened the next cycle's candidates, or nothing fits.
		out.Retries++
		assumed, result, err = r.cycle(ctx, info)
	}
	pprof.SetGoroutineLabels(ctx)
	took := time.Since(start)
	if err != nil {
		return placement{}, 0, fmt.Errorf("schedule pod %s: %w", info.Pod.Name, err)
	}
	out.Evaluated += float64(result.EvaluatedNodes) / float64(out.Pods)
	out.Feasible += float64(result.FeasibleNodes) / float64(out.Pods)
	r.SchedulingQueue.Done(assumed.UID)
	p := placement{pod: assumed}
	if r.state != nil {
		p.alloc = r.state.Binder.Attempt(assumed.UID, assumed.Spec.NodeName).Pending()
	}
	return p, took, nil
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
	if _, err := r.assume(ctx, state, assumed); err != nil {
		return nil, result, err
	}
	if s := r.framework.RunPermitPlugins(ctx, state, assumed, result.SuggestedHost); !s.IsSuccess() {
		return nil, result, fmt.Errorf("permit: %w", s.AsError())
	}
	return assumed, result, nil
}

// verify checks that every pod has a node with room for it and that no GPU was
// given to two pods.
func verify(c *simulated, pods []*v1.Pod, placed []placement, chosen bool) error {
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

// hintsUsed reads the number of cycles of a profile that have used batching's hint.
func hintsUsed(profile string) int {
	v, err := testutil.GetCounterMetricValue(metrics.BatchAttemptStats.WithLabelValues(profile, metrics.BatchAttemptHintUsed))
	if err != nil {
		return 0
	}
	return int(v)
}

// cpuTime is the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readShares fills in the shares of the cycles' CPU time, from a CPU profile of them.
func (out *Cell) readShares(profile *pprofile.Profile) {
	perPod := func(s *pprofile.Sample) float64 { return float64(s.Value[1]) / 1000 / float64(out.Pods) }
	for _, s := range profile.Sample {
		if _, ok := s.Label[cycleLabel]; !ok { // garbage collection and the benchmark itself
			continue
		}
		out.Samples += s.Value[0]
		out.InCycle += perPod(s)
		if slices.ContainsFunc(names(s), func(f string) bool { return strings.HasPrefix(f, ours) }) {
			out.Ours += perPod(s)
		}
	}
}

// names returns a sample's functions, innermost first, inlined ones included.
func names(s *pprofile.Sample) []string {
	var out []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				out = append(out, line.Function.Name)
			}
		}
	}
	return out
}

// writeProfile merges the CPU profiles of several cells into one file.
func writeProfile(path string, profiles []*pprofile.Profile) error {
	if path == "" || len(profiles) == 0 {
		return nil
	}
	merged, err := pprofile.Merge(profiles)
	if err != nil {
		return fmt.Errorf("merge the CPU profiles: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the CPU profile: %w", err)
	}
	return errors.Join(merged.Write(f), f.Close())
}
