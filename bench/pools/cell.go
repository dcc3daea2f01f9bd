// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// Cell is the result of one scheduler, once.
type Cell struct {
	Profile string `json:"profile"`
	Repeat  int    `json:"repeat"`
	Jobs    int    `json:"jobs"`
	// From the first request for a job until the last was admitted, and until its pod was bound.
	AdmittedSeconds float64 `json:"admittedSeconds"`
	BoundSeconds    float64 `json:"boundSeconds"`
	// By process, when the last pod was bound.
	ResidentMiB map[string]float64 `json:"residentMiB"`
	CPUMs       map[string]float64 `json:"cpuMsPerJob"`
	// By kind, for each job.
	Requests map[string]float64 `json:"requestsPerJob"`
}

// jobsPerSecond returns the jobs bound per second, from the first request on.
func (c *Cell) jobsPerSecond() float64 { return float64(c.Jobs) / c.BoundSeconds }

// The measured processes.
const (
	processKueue      = "Kueue"
	processScheduler  = "scheduler"
	processController = "pool controller"
	processServer     = "API server, etcd, controllers, load"
)

var processes = []string{processKueue, processScheduler, processController, processServer}

// run measures all cells. After an error the cells measured so far are returned with it.
func run(ctx context.Context, o *options, progress io.Writer) (cells []Cell, err error) {
	log := &devcluster.Tail{}
	c, err := newCluster(ctx, o, log)
	if err != nil {
		_, _ = io.WriteString(progress, log.String()) // the error is reported anyway
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }() //nolint:contextcheck // it has to end although ctx may be over
	order := slices.Clone(o.Profiles)
	for repeat := range o.Repeats {
		for _, profile := range order {
			cell, err := c.cell(ctx, o, profile, repeat)
			if err != nil {
				return cells, fmt.Errorf("%s, repeat %d: %w", profile, repeat+1, err)
			}
			fmt.Fprintf(progress, "%s, repeat %d: %.1f jobs/s\n", profile, repeat+1, cell.jobsPerSecond())
			cells = append(cells, *cell)
		}
		slices.Reverse(order) // so that none always comes first
	}
	return cells, nil
}

// cell measures one cell and leaves no job behind.
func (c *cluster) cell(ctx context.Context, o *options, profile string, repeat int) (_ *Cell, err error) {
	if err := c.queuesFor(ctx, o, profile); err != nil {
		return nil, err
	}
	defer func() {
		if ctx.Err() == nil { // otherwise the whole cluster is about to be removed
			err = errors.Join(err, c.clean(ctx, o))
		}
	}()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	admitted, bound := c.watchAdmitted(watching), c.watchBound(watching)
	before, err := c.cpu(profile)
	if err != nil {
		return nil, err
	}
	asked, err := requestsDone()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := c.submit(ctx, o, profile); err != nil {
		return nil, err
	}
	out := &Cell{Profile: profile, Repeat: repeat, Jobs: o.Jobs, ResidentMiB: map[string]float64{}, CPUMs: map[string]float64{}}
	if err := collect(ctx, o, admitted, bound); err != nil {
		return nil, err
	}
	out.AdmittedSeconds, out.BoundSeconds = admitted.last.Sub(start).Seconds(), bound.last.Sub(start).Seconds()
	if err := c.measure(profile, before, out); err != nil {
		return nil, err
	}
	answered, err := requestsDone()
	out.Requests = perJob(asked, answered, o.Jobs)
	return out, err
}

// counter counts the objects that have come to match.
type counter struct {
	match func(any) bool
	seen  chan types.UID
	known map[types.UID]bool
	last  time.Time
}

// count watches until ctx ends.
func count(ctx context.Context, lw cache.ListerWatcher, kind runtime.Object, match func(any) bool) *counter {
	c := &counter{match: match, seen: make(chan types.UID, 1024), known: map[types.UID]bool{}}
	told := func(o any) {
		if m, ok := o.(metav1.Object); ok && match(o) {
			select {
			case c.seen <- m.GetUID():
			case <-ctx.Done():
			}
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: kind,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: told, UpdateFunc: func(_, o any) { told(o) }},
	})
	go informer.RunWithContext(ctx)
	return c
}

func (c *counter) saw(uid types.UID) {
	if !c.known[uid] {
		c.known[uid], c.last = true, time.Now()
	}
}

func (c *cluster) watchAdmitted(ctx context.Context) *counter {
	all := c.dyn.Resource(workloads)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, o)
		},
	}
	return count(ctx, lw, &unstructured.Unstructured{}, func(o any) bool {
		u, ok := o.(*unstructured.Unstructured)
		return ok && isTrue(u, "Admitted")
	})
}

func (c *cluster) watchBound(ctx context.Context) *counter {
	all := c.kube.CoreV1().Pods(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = boundPods
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = boundPods
			return all.Watch(ctx, o)
		},
	}
	return count(ctx, lw, &v1.Pod{}, func(any) bool { return true })
}

// boundPods selects pods with a node.
const boundPods = "spec.nodeName!="

// collect waits until all jobs are admitted and their pods are bound.
func collect(ctx context.Context, o *options, admitted, bound *counter) error {
	stall := time.NewTimer(o.Stall)
	defer stall.Stop()
	for len(admitted.known) < o.Jobs || len(bound.known) < o.Jobs {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stall.C:
			return fmt.Errorf("%d of %d jobs are admitted and %d pods bound, the last more than %v ago", len(admitted.known), o.Jobs, len(bound.known), o.Stall)
		case uid := <-admitted.seen:
			admitted.saw(uid)
		case uid := <-bound.seen:
			bound.saw(uid)
		}
		stall.Reset(o.Stall)
	}
	return nil
}

// pids returns the processes of a cell.
func (c *cluster) pids(profile string) map[string]int {
	out := map[string]int{
		processKueue: c.Kueue().PID(), processScheduler: c.schedulers[schedulerOf(profile)].PID(), processServer: os.Getpid(),
	}
	if profile == profilePools {
		out[processController] = c.checked.PID()
	}
	return out
}

// cpu returns the CPU time that each process has used so far.
func (c *cluster) cpu(profile string) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for name, pid := range c.pids(profile) {
		var err error
		if out[name], err = proc.CPUTime(pid); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// measure reads each process's memory, and the CPU time it used since before.
func (c *cluster) measure(profile string, before map[string]time.Duration, out *Cell) error {
	after, err := c.cpu(profile)
	if err != nil {
		return err
	}
	for name, pid := range c.pids(profile) {
		resident, err := proc.Resident(pid)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out.ResidentMiB[name] = float64(resident) / (1 << 20)
		out.CPUMs[name] = float64((after[name] - before[name]).Milliseconds()) / float64(out.Jobs)
	}
	return nil
}
