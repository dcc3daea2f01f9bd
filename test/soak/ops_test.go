// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

const (
	// lanes is the number of concurrent operations on pods and gangs; those on one object run in order.
	lanes = 8
	// opTime bounds an operation beside its lag: each of its requests is retried for patience.
	opTime = 3 * patience
)

// churn plays a phase's operations and returns when all of them are over and undone.
func (e *testEnv) churn(ctx context.Context, ph *phase) {
	over := make(chan struct{})
	e.mu.Lock()
	e.over, e.deadly = over, ph.Deadly
	e.mu.Unlock()
	e.usual()
	peace := e.attack(burstInChurn)
	var wg sync.WaitGroup
	line := func() chan *op {
		ch := make(chan *op, len(ph.Ops))
		wg.Go(func() {
			for o := range ch {
				e.perform(ctx, o)
			}
		})
		return ch
	}
	control := line()
	var lane [lanes]chan *op
	for i := range lane {
		lane[i] = line()
	}
	start := time.Now()
	for i := range ph.Ops {
		o := &ph.Ops[i]
		if !pause(ctx, time.Until(start.Add(o.At))) {
			break
		}
		switch word, _, _ := strings.Cut(string(o.Kind), "-"); word {
		case "pod", "gang":
			h := fnv.New32a()
			_, _ = io.WriteString(h, o.Pod) // a hash never fails to write
			lane[h.Sum32()%lanes] <- o
		case "node", "graph", "lease", "groups":
			wg.Go(func() { e.perform(ctx, o) })
		default:
			control <- o
		}
	}
	pause(ctx, time.Until(start.Add(ph.Length)))
	close(over)
	close(control)
	for _, l := range lane {
		close(l)
	}
	wg.Wait()
	peace()
	e.none()
}

// pause reports whether the time passed; if not, the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// lapse waits for a lag, or for the end of the phase if that is sooner.
func (e *testEnv) lapse(ctx context.Context, lag time.Duration) {
	e.mu.Lock()
	over := e.over
	e.mu.Unlock()
	t := time.NewTimer(lag)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-over:
	case <-t.C:
	}
}

// perform does one operation and undoes it after its lag.
func (e *testEnv) perform(ctx context.Context, o *op) {
	ctx, cancel := context.WithTimeout(ctx, opTime+o.Lag)
	defer cancel()
	e.note("%s", o)
	var done bool
	var err error
	switch word, _, _ := strings.Cut(string(o.Kind), "-"); word {
	case "pod":
		done, err = e.podOp(ctx, o)
	case "gang":
		done, err = e.gangOp(ctx, o)
	case "node", "graph", "lease":
		done, err = e.nodeOp(ctx, o)
	case "groups":
		e.failGroups(ctx, o)
		done = true
	default:
		done, err = e.controlOp(ctx, o)
	}
	switch {
	case err != nil && e.ctx.Err() == nil:
		e.fail("operation %s: %v", o, err)
	case done:
		e.count("op "+string(o.Kind), 1)
	default:
		e.count("op without an object", 1)
	}
}

// podOp reports whether the operation had an object.
func (e *testEnv) podOp(ctx context.Context, o *op) (bool, error) {
	if o.Kind == opCreate {
		return true, e.create(ctx, o)
	}
	var pod *v1.Pod
	err := e.try(ctx, "read "+o.Pod, func(ctx context.Context) (err error) {
		pod, err = e.kube.CoreV1().Pods(namespace).Get(ctx, o.Pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if pod == nil {
		if o.Kind == opRecreate {
			return true, e.create(ctx, o)
		}
		return false, nil
	}
	switch o.Kind { //nolint:exhaustive // operations on pods only
	case opDelete:
		return true, e.remove(ctx, pod, graceSeconds)
	case opRecreate:
		if err := e.remove(ctx, pod, 0); err != nil {
			return false, err
		}
		return true, e.create(ctx, o)
	case opFail:
		return true, e.setPhase(ctx, pod, v1.PodFailed, "SoakFailed")
	case opFinish:
		return true, e.finish(ctx, pod)
	case opEvict:
		return true, e.evict(ctx, pod)
	}
	return false, fmt.Errorf("unknown operation %s", o.Kind)
}

func (e *testEnv) create(ctx context.Context, o *op) error {
	pod := podOf(o.Pod, &o.Want)
	return e.try(ctx, "create "+o.Pod, func(ctx context.Context) error {
		_, err := e.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil {
			e.count("pods created", 1)
		}
		return exists(err)
	})
}

// finish ends a pod whose containers exit by themselves: kubelet releases the devices and then reports
// it.
func (e *testEnv) finish(ctx context.Context, pod *v1.Pod) error {
	if b := e.boxOf(pod.Spec.NodeName); b != nil {
		b.kubelet.exited(pod.UID)
	}
	return e.setPhase(ctx, pod, v1.PodSucceeded, "")
}

// evict sends one eviction; a budget may refuse it.
func (e *testEnv) evict(ctx context.Context, pod *v1.Pod) error {
	err := e.kube.CoreV1().Pods(namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if apierrors.IsTooManyRequests(err) {
		e.count("evictions refused by the budget", 1)
	}
	return nil // after any other error, the pod stays
}

func (e *testEnv) boxOf(node string) *box {
	for _, b := range e.boxes {
		if b.name == node {
			return b
		}
	}
	return nil
}

// nodeOp reports whether the operation was possible: one node is changed by one operation at a time.
func (e *testEnv) nodeOp(ctx context.Context, o *op) (bool, error) {
	b := e.boxes[o.Node]
	switch o.Kind { //nolint:exhaustive // those on graphs
	case opLinkDown:
		return true, b.altered(ctx, o.Lag, func(by int) { add(b.down, b.pair(o.Draw), by) })
	case opGPUSick:
		return true, b.altered(ctx, o.Lag, func(by int) { add(b.sick, b.gpu(o.Draw), by) })
	case opGPUGone:
		return true, b.altered(ctx, o.Lag, func(by int) { add(b.gone, b.gpu(o.Draw), by) })
	case opGraphRemoved:
		return true, e.try(ctx, "delete the graph of "+b.name, func(ctx context.Context) error {
			return gone(e.dyn.Resource(v1alpha1.GroupVersionResource).Delete(ctx, b.name, metav1.DeleteOptions{}))
		})
	}
	if !b.turn.TryLock() {
		return false, nil
	}
	defer b.turn.Unlock()
	switch o.Kind { //nolint:exhaustive // those on nodes and Leases
	case opCordon:
		if err := b.cordon(ctx, true); err != nil {
			return false, err
		}
		e.lapse(ctx, o.Lag)
		return true, b.cordon(ctx, false)
	case opReturn, opReplace:
		return true, b.readd(ctx, o)
	case opRackMoved, opRackLost:
		return true, b.relabel(ctx, o)
	case opExporterLease:
		b.stopExporter()
		if err := b.expire(ctx, nodelease.ExporterPrefix); err != nil {
			return false, err
		}
		e.lapse(ctx, o.Lag)
		return true, b.startExporter(ctx)
	case opAgentLease:
		if !b.agent {
			return false, nil
		}
		b.stopAgent()
		if err := b.expire(ctx, nodelease.AgentPrefix); err != nil {
			return false, err
		}
		e.lapse(ctx, o.Lag)
		return true, b.startAgent(ctx)
	}
	return false, fmt.Errorf("unknown operation %s", o.Kind)
}

// readd deletes a node and recreates it under its name.
func (b *box) readd(ctx context.Context, o *op) error {
	if err := b.leave(ctx); err != nil {
		return err
	}
	b.w.lapse(ctx, o.Lag)
	if o.Kind == opReplace {
		if err := b.collectPods(ctx); err != nil {
			return err
		}
		b.kubelet.forget()
		if err := b.replace(); err != nil {
			return err
		}
		if err := b.kubelet.save(); err != nil {
			return err
		}
	}
	return b.join(ctx)
}

// altered changes the hardware for a while.
func (b *box) altered(ctx context.Context, lag time.Duration, how func(by int)) error {
	if err := b.change(ctx, func() { how(1) }); err != nil {
		return err
	}
	b.w.lapse(ctx, lag)
	return b.change(ctx, func() { how(-1) })
}

func add[K comparable](m map[K]int, k K, by int) {
	if m[k] += by; m[k] <= 0 {
		delete(m, k)
	}
}

// controlOp reports whether the operation had an object.
func (e *testEnv) controlOp(ctx context.Context, o *op) (bool, error) {
	switch o.Kind {
	case opKillLeader, opPauseLeader:
		r := e.leader(ctx)
		if r == nil {
			return false, nil
		}
		e.mark("%s leads; next: %s", r.name, o.Kind)
		if o.Kind == opPauseLeader {
			return true, r.pause(ctx, o.Lag)
		}
		return true, r.kill(ctx, o.Lag)
	case opKillFollower:
		r := e.follower(ctx)
		if r == nil {
			return false, nil
		}
		return true, r.kill(ctx, o.Lag)
	case opRestartAPI:
		e.mark("the API server crashes")
		e.disturb("a crash of the API server")
		if err := e.cluster.CrashAPIServer(ctx); err != nil {
			return false, err
		}
		e.lapse(ctx, o.Lag)
		return true, e.cluster.StartAPIServer(ctx)
	case opSlowAPI:
		e.impose(1, 1, slowest)
		e.lapse(ctx, o.Lag)
		e.usual()
	case opFaultBurst:
		e.impose(6, 0.2, 300*time.Millisecond)
		e.lapse(ctx, o.Lag)
		e.usual()
	case opLagWatches:
		lag := 500*time.Millisecond + time.Duration(o.Draw%2500)*time.Millisecond
		for _, r := range e.schedulers {
			r.proxy.DelayWatches(lag)
		}
		e.lapse(ctx, o.Lag)
		for _, r := range e.schedulers {
			r.proxy.DelayWatches(0)
		}
	case opCutWatches:
		e.mu.Lock()
		spare := []string{"pods"}
		if e.deadly {
			spare = nil
		}
		e.mu.Unlock()
		for _, r := range e.schedulers {
			r.proxy.CutWatches(spare...)
		}
	default:
		return false, fmt.Errorf("unknown operation %s", o.Kind)
	}
	return true, nil
}
