// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// bound bounds the wait for one pod.
	bound = 2 * time.Minute
	// between is the time from one pod's binding to the next pod.
	between = 50 * time.Millisecond
)

// load is the other tenant's activity. It goes on until stop, which returns its
// description.
type load struct {
	name  string
	begin func(ctx context.Context, c *cluster, o *options) (stop func() (string, error), err error)
}

// loads are in the order of measuring.
var loads = []load{
	{alone, nothing},
	{"such pods of no scheduler that come", foreignPods},
	{"impossible pods that come", comingPods},
	{"impossible pods that wait", waitingPods},
	{alone, nothing},
	{"streams of the web view", streams},
	{"what-if questions", questions},
	{alone, nothing},
}

func nothing(context.Context, *cluster, *options) (func() (string, error), error) {
	return func() (string, error) { return "", nil }, nil
}

func run(ctx context.Context, o *options, log io.Writer) (rows []row, err error) {
	c, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }() //nolint:contextcheck // it has to end although ctx may be over
	if _, err := c.measure(ctx, 10); err != nil {       // until graphs are read and caches filled
		return nil, fmt.Errorf("the first pods: %w", err)
	}
	for _, l := range loads {
		begin := time.Now()
		r, err := c.row(ctx, o, l)
		if err != nil {
			return rows, fmt.Errorf("beside %s: %w", l.name, err)
		}
		rows = append(rows, r)
		fmt.Fprintf(log, "%s: p50 %.1f ms, p99 %.1f ms, %s; row %.0f s\n", l.name, r.Millis.Median(), r.Millis.Quantile(0.99), r.Load, time.Since(begin).Seconds())
	}
	return rows, nil
}

func (c *cluster) row(ctx context.Context, o *options, l load) (r row, err error) {
	r.Beside = l.name
	stop, err := l.begin(ctx, c, o)
	if err != nil {
		return r, err
	}
	r.Millis, err = c.measure(ctx, o.Pods)
	words, stopErr := stop()
	r.Load = words
	return r, errors.Join(err, stopErr)
}

// measure creates pods, one after the other, and returns the milliseconds that each
// took.
func (c *cluster) measure(ctx context.Context, n int) ([]float64, error) {
	pods := c.kube.CoreV1().Pods(measured)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!=", ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch the pods: %w", err)
	}
	defer w.Stop()
	out := make([]float64, 0, n)
	for i := range n {
		pod := c.pod(fmt.Sprintf("pod-%04d", i))
		begin := time.Now()
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make a pod: %w", err)
		}
		if err := awaitBound(ctx, w, pod.Name); err != nil {
			return nil, err
		}
		out = append(out, float64(time.Since(begin))/float64(time.Millisecond))
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return nil, fmt.Errorf("delete a pod: %w", err)
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return nil, ctx.Err() // main recognizes Ctrl-C by it
		}
	}
	return out, nil
}

func awaitBound(ctx context.Context, w watch.Interface, name string) error {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err() // main recognizes Ctrl-C by it
		case <-timer.C:
			return fmt.Errorf("pod %s is not bound after %s", name, bound)
		case e, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch of pods ended")
			}
			if p, isPod := e.Object.(*v1.Pod); isPod && p.Name == name && e.Type != watch.Deleted {
				return nil
			}
		}
	}
}

// pod returns a pod of the measured tenant.
func (c *cluster) pod(name string) *v1.Pod {
	one := v1.ResourceList{v1alpha1.DefaultResource: resource.MustParse("1")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: measured},
		Spec: v1.PodSpec{
			SchedulerName: c.scheduler, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10", Resources: v1.ResourceRequirements{Limits: one}}},
		},
	}
}
