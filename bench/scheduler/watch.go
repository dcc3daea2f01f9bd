// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// boundPods selects pods with a node: a pod enters the watch when it is bound,
// so that nothing else of its life is sent or decoded.
const boundPods = "spec.nodeName!="

// bindingWatch sees pods get bound. A watch that the API server ends is opened
// again where it ended.
type bindingWatch struct {
	kube     kubernetes.Interface
	version  string // of the last event
	current  watch.Interface
	restarts int
}

// watchBindings opens a watch on pods that get bound from now on; none may be yet.
func watchBindings(ctx context.Context, kube kubernetes.Interface) (*bindingWatch, error) {
	list, err := kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: boundPods})
	if err != nil {
		return nil, fmt.Errorf("list bound pods: %w", err)
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("%d pods of an earlier cell are left", len(list.Items))
	}
	w := &bindingWatch{kube: kube, version: list.ResourceVersion}
	return w, w.open(ctx)
}

func (w *bindingWatch) open(ctx context.Context) (err error) {
	w.current, err = w.kube.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx,
		metav1.ListOptions{FieldSelector: boundPods, ResourceVersion: w.version})
	if err != nil {
		return fmt.Errorf("watch bound pods: %w", err)
	}
	return nil
}

func (w *bindingWatch) stop() { w.current.Stop() }

// next handles what came from the current watch and reports whether it was a pod's binding.
func (w *bindingWatch) next(ctx context.Context, e watch.Event, ok bool) (bool, error) {
	if !ok {
		w.restarts++
		return false, w.open(ctx)
	}
	if e.Type == watch.Error {
		return false, fmt.Errorf("watch bound pods: %w", apierrors.FromObject(e.Object))
	}
	object, err := meta.Accessor(e.Object)
	if err != nil {
		return false, fmt.Errorf("watch bound pods: %w", err)
	}
	w.version = object.GetResourceVersion()
	return e.Type == watch.Added, nil
}

var errStalled = errors.New("no pod was bound any more")

// collect waits until n pods are bound and returns when each was seen to be. It calls
// seen with each binding's number, and gives up when there was none for as long as stall.
func collect(ctx context.Context, w *bindingWatch, n int, stall time.Duration, seen func(int)) ([]time.Time, error) {
	out := make([]time.Time, 0, n)
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for len(out) < n {
		select {
		case <-ctx.Done():
			return out, ctx.Err() // main tells by it that somebody pressed Ctrl-C
		case <-timer.C:
			return out, fmt.Errorf("%d of %d pods are bound, the last %v ago: %w", len(out), n, stall, errStalled)
		case e, ok := <-w.current.ResultChan():
			bound, err := w.next(ctx, e, ok)
			if err != nil {
				return out, err
			}
			if bound {
				seen(len(out))
				out = append(out, time.Now())
				timer.Reset(stall)
			}
		}
	}
	return out, nil
}

// refusal is what the scheduler says about the first pod without a node.
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
