// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/release"
)

// settleLimit bounds the wait for what follows the last binding: metrics of the
// attempt, deletions, events.
const (
	settleLimit = 30 * time.Second
	settlePoll  = 50 * time.Millisecond
)

// clients is how many requests of the load generator are under way at once.
const clients = 32

// systemNamespace has the accounts and Leases.
const systemNamespace = release.Namespace

// Cell is what was measured of one profile, workload and size of cluster.
type Cell struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Profile  string `json:"profile"`
	Repeat   int    `json:"repeat"`
	Pods     int    `json:"pods"`

	PodsPerSecond  float64 `json:"podsPerSecond"`  // in the window
	WindowFrom     int     `json:"windowFrom"`     // number of the binding that the window begins with
	GraphsRead     int     `json:"graphsRead"`     // nodes whose graph counts then; 0 if the window begins with the first binding
	WindowSeconds  float64 `json:"windowSeconds"`  // from that binding to the last
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
	// CPU up to the first binding: of the scheduler since it was started, and of the
	// control plane meanwhile. Pods with GPUs are bound once all graphs are read.
	StartCPUSeconds             float64 `json:"startCPUSeconds"`
	StartControlPlaneCPUSeconds float64 `json:"startControlPlaneCPUSeconds"`
	SchedulerPeakMiB            float64 `json:"schedulerPeakMiB"`
	LiveHeapMiB                 float64 `json:"liveHeapMiB"` // after a collection, with all pods bound
	// HoldCPU is the scheduler's CPU in ms a second with nothing to schedule; 0 without -hold.
	HoldCPU float64 `json:"holdCPUMsPerSecond"`
	// The control plane's in the same time, and this process's, which plays the nodes.
	HoldControlPlaneCPU float64 `json:"holdControlPlaneCPUMsPerSecond"`
	LoadCPU             float64 `json:"loadCPUMsPerSecond"`

	HostileWrites  float64 `json:"hostileWritesPerSecond,omitempty"` // objects that hostile nodes published
	HostileRefused int64   `json:"hostileRefused,omitempty"`         // and that the API server refused

	// Renewals of honest exporters' Leases beside it, in runs with hostile nodes.
	Renewals       int     `json:"renewals,omitempty"`
	RenewalsFailed int     `json:"renewalsFailed,omitempty"`
	RenewalP50Ms   float64 `json:"renewalP50Ms,omitempty"`
	RenewalP99Ms   float64 `json:"renewalP99Ms,omitempty"`

	Plans     int     `json:"plans,omitempty"` // of gangs, that found places
	PlanP50Ms float64 `json:"planP50Ms,omitempty"`
	PlanP99Ms float64 `json:"planP99Ms,omitempty"`

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
	// profiles is how the names of the files begin for the CPU profiles of scheduler
	// and API server, over so long from the scheduler's readiness, and for its heap
	// profile after that; such a cell's figures do not count.
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
	if o.Without != "" && strings.HasSuffix(p.profile, beforeSuffix) {
		if err := config.leaveOut(o.Without); err != nil {
			return nil, err
		}
	}
	defer func() {
		if ctx.Err() == nil { // else the control plane is about to go with all there is
			err = errors.Join(err, c.clean(ctx))
		}
		out.ElapsedSeconds = since(begin)
	}()
	stop, err := c.surround(ctx, o, p.profile, out)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	if err := c.createWaiting(ctx, o, p, config); err != nil {
		return nil, err
	}
	if err := c.createPods(ctx, p.workload.pods(p.pods, o.Seed, config.schedulerName)); err != nil {
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

func (c *cluster) createPods(ctx context.Context, pods []*v1.Pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for _, pod := range pods {
		g.Go(func() error {
			_, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
			return err // wrapped below
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the pods: %w", err)
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
			return false, err // wrapped below
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

// since is the time since t in seconds.
func since(t time.Time) float64 { return time.Since(t).Seconds() }
