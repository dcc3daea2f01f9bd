// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nvtopo/nvtopo/bench/internal/proc"
)

// boundPods selects pods with a node: a pod enters the watch when it is bound, so that none of its other
// events are sent or decoded.
const boundPods = "spec.nodeName!="

// watchBindings watches for pods being bound from now on; none may be bound yet. The watch is restarted
// if the API server ends it.
func watchBindings(ctx context.Context, kube kubernetes.Interface) (watch.Interface, error) {
	pods := kube.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: boundPods})
	if err != nil {
		return nil, fmt.Errorf("list bound pods: %w", err)
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("%d pods of an earlier cell are left", len(list.Items))
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = boundPods
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch bound pods: %w", err)
	}
	return w, nil
}

var errStalled = errors.New("no pod was bound any more")

// nextBound waits for the next pod that is bound.
func nextBound(ctx context.Context, w watch.Interface, stall time.Duration) (*v1.Pod, error) {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err() // main recognizes Ctrl-C by it
		case <-timer.C:
			return nil, fmt.Errorf("the last binding was %v ago: %w", stall, errStalled)
		case e, ok := <-w.ResultChan():
			pod, isPod := e.Object.(*v1.Pod)
			switch {
			case !ok:
				return nil, cmp.Or(ctx.Err(), errors.New("the watch of bound pods ended"))
			case !isPod:
				return nil, fmt.Errorf("watch bound pods: %w", apierrors.FromObject(e.Object))
			case e.Type == watch.Added:
				return pod, nil
			}
		}
	}
}

// collect waits until n pods are bound and returns the time at which each binding was seen. It calls
// seen with each binding's number, and gives up when none occurs for as long as stall.
func collect(ctx context.Context, w watch.Interface, n int, stall time.Duration, seen func(int)) ([]time.Time, error) {
	out := make([]time.Time, 0, n)
	for len(out) < n {
		if _, err := nextBound(ctx, w, stall); err != nil {
			return out, fmt.Errorf("%d of %d pods are bound: %w", len(out), n, err)
		}
		seen(len(out))
		out = append(out, time.Now())
	}
	return out, nil
}

// refusal returns the scheduler's message on the first pod without a node.
func refusal(ctx context.Context, kube kubernetes.Interface) string {
	list, err := kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return err.Error()
	}
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
				return list.Items[i].Name + ": " + c.Message
			}
		}
	}
	return fmt.Sprintf("%d pods wait, and the scheduler said nothing about them", len(list.Items))
}

// sampleInterval is a few ticks of proc(5): a finer one would show nothing more.
const sampleInterval = 50 * time.Millisecond

// sample is the CPU time of both processes at one moment.
type sample struct {
	at                      time.Time
	scheduler, controlPlane time.Duration
}

// samples are in order of time.
type samples []sample

func takeSample(scheduler, controlPlane int) (sample, error) {
	a, err := proc.CPUTime(scheduler)
	b, err2 := proc.CPUTime(controlPlane)
	return sample{at: time.Now(), scheduler: a, controlPlane: b}, errors.Join(err, err2)
}

// startSampling records both processes' CPU time until stop, which returns the samples.
func startSampling(ctx context.Context, scheduler, controlPlane int) (stop func() (samples, error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var out samples
	var failure error
	go func() {
		defer close(done)
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for ended := false; failure == nil; {
			var s sample
			s, failure = takeSample(scheduler, controlPlane)
			out = append(out, s)
			if ended { // so that the last binding lies between two samples
				return
			}
			select {
			case <-ctx.Done():
				ended = true
			case <-ticker.C:
			}
		}
	}()
	return func() (samples, error) {
		cancel()
		<-done
		return out, failure
	}
}

// at returns the state at a moment, interpolated linearly between two samples.
func (s samples) at(t time.Time) sample {
	i, _ := slices.BinarySearchFunc(s, t, func(x sample, t time.Time) int { return x.at.Compare(t) })
	switch {
	case i == 0:
		return s[0]
	case i == len(s):
		return s[len(s)-1]
	}
	a, b := s[i-1], s[i]
	part := float64(t.Sub(a.at)) / float64(b.at.Sub(a.at))
	between := func(x, y time.Duration) time.Duration { return x + time.Duration(part*float64(y-x)) }
	return sample{at: t, scheduler: between(a.scheduler, b.scheduler), controlPlane: between(a.controlPlane, b.controlPlane)}
}

// window computes rate and CPU per pod from one binding, by its number, to the last. The time before the
// first is the start: reading caches, and our graphs, which readiness does not wait for.
func (out *Cell) window(bound []time.Time, used samples, from int) {
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
	out.BothCPUMs = out.SchedulerCPUMs + out.ControlPlaneCPUMs
}

// holdStill measures the CPU time that the scheduler, the control plane and this process use with
// nothing to schedule.
func (out *Cell) holdStill(ctx context.Context, length time.Duration, scheduler, controlPlane int) error {
	if length == 0 {
		return nil
	}
	pids, perSecond := []int{scheduler, controlPlane, os.Getpid()}, []*float64{&out.HoldCPU, &out.HoldControlPlaneCPU, &out.LoadCPU}
	var used [2][3]time.Duration
	for at := range used {
		if at > 0 {
			if err := pause(ctx, length); err != nil {
				return err
			}
		}
		for i, pid := range pids {
			var err error
			if used[at][i], err = proc.CPUTime(pid); err != nil {
				return err
			}
		}
	}
	for i := range pids {
		*perSecond[i] = ms((used[1][i] - used[0][i]).Seconds()) / length.Seconds()
	}
	return nil
}

// pause waits for length, or until ctx ends.
func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err() // the caller's own
	case <-time.After(length):
		return nil
	}
}

// since returns the time since t in seconds.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
