// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// boundPods selects pods with a node: a pod enters the watch when it is bound,
// so that nothing else of its life is sent or decoded.
const boundPods = "spec.nodeName!="

// bindings are the times at which pods were seen bound, in order.
type bindings []time.Time

// count is the number of bindings after from.
func (b bindings) countAfter(from time.Time) int {
	n := 0
	for _, t := range b {
		if t.After(from) {
			n++
		}
	}
	return n
}

// watchBindings opens a watch on pods that get bound from now on; none may be yet.
func watchBindings(ctx context.Context, kube kubernetes.Interface) (watch.Interface, error) {
	pods := kube.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: boundPods})
	if err != nil {
		return nil, fmt.Errorf("list bound pods: %w", err)
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("%d pods of an earlier cell are left", len(list.Items))
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: boundPods, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch bound pods: %w", err)
	}
	return w, nil
}

var errStalled = errors.New("no pod was bound any more")

// collect waits until n pods are bound, calling first at the first of them. It
// gives up when none was for as long as stall.
func collect(ctx context.Context, w watch.Interface, n int, stall time.Duration, first func()) (bindings, error) {
	out := make(bindings, 0, n)
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for len(out) < n {
		select {
		case <-ctx.Done():
			return out, ctx.Err() //nolint:wrapcheck // main tells by it that somebody pressed Ctrl-C
		case <-timer.C:
			return out, fmt.Errorf("%d of %d pods are bound after %v: %w", len(out), n, stall, errStalled)
		case e, ok := <-w.ResultChan():
			switch {
			case !ok:
				return out, errors.New("the watch on pods ended")
			case e.Type == watch.Error:
				return out, fmt.Errorf("the watch on pods: %w", apierrors.FromObject(e.Object))
			case e.Type != watch.Added:
				continue
			}
			if out = append(out, time.Now()); len(out) == 1 {
				first()
			}
			timer.Reset(stall)
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
