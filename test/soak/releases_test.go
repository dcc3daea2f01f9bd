// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// backlog is the number of pods that wait while GPUs come free, more than fit.
	backlog = 60
	// releases is the number of pods that end then, one after the other.
	releases   = 12
	watchEvery = 500 * time.Millisecond
)

// releaseOneByOne makes many pods wait and running ones end, and fails if a pod that fits waits for good:
// each ended pod's GPUs are used before the next ends, and no other event would wake waiting pods. It is
// played between calm and the end of all pods.
func (e *testEnv) releaseOneByOne(ctx context.Context, t *testing.T) {
	t.Helper()
	for i := range backlog {
		o := &op{Pod: fmt.Sprintf("backlog-%02d", i), Want: podPlan{GPUs: []int{1 + i%4}, Profile: i % len(profiles)}}
		if err := e.create(ctx, o); err != nil {
			e.fail("%v", err)
			return
		}
	}
	var longest time.Duration
	ended := 0
	for range releases + 1 {
		start := time.Now()
		if !e.used(ctx) {
			return
		}
		longest = max(longest, time.Since(start))
		if ended == releases {
			break
		}
		pod, err := e.endOne(ctx)
		if err != nil {
			e.fail("%v", err)
			return
		}
		if pod == nil {
			break
		}
		ended++
	}
	e.count("pods that ended while others waited", ended)
	e.note("with %d pods waiting and %d ending, what is free was used after %.1f s at most", backlog, ended, longest.Seconds())
	t.Logf("what is free was used after %.1f s at most while %d ended", longest.Seconds(), ended)
}

// used waits until no waiting pod fits a node, and ended pods are out of kubelet's record.
func (e *testEnv) used(ctx context.Context) bool {
	var left string
	err := wait.PollUntilContextTimeout(ctx, watchEvery, patience, true, func(ctx context.Context) (bool, error) {
		list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		switch {
		case ctx.Err() != nil: // less specific than the earlier text
		case err != nil:
			left = err.Error()
		default:
			if left = e.dying(list.Items); left == "" {
				left = e.fitting(ctx, list.Items)
			}
		}
		return left == "" && ctx.Err() == nil, nil
	})
	if err != nil && e.ctx.Err() == nil {
		e.fail("not within %v, with nothing else going on: %s", patience, left)
	}
	return err == nil
}

// dying describes an ended pod whose GPUs a kubelet still holds, empty for none.
func (e *testEnv) dying(pods []v1.Pod) string {
	for i := range pods {
		if b := e.boxOf(pods[i].Spec.NodeName); b != nil && ended(&pods[i]) && b.kubelet.holding()[pods[i].UID] != nil {
			return fmt.Sprintf("kubelet of %s has GPUs of %s, which ended", b.name, pods[i].Name)
		}
	}
	return ""
}

// fitting describes a waiting pod that fits a node, empty for none.
func (e *testEnv) fitting(ctx context.Context, pods []v1.Pod) string {
	free := e.freeSets(pods)
	for i := range pods {
		p := &pods[i]
		node, err := e.fitsOn(p, free)
		// A place may be kept for a gang that has waited for long.
		kept := strings.Contains(refusal(p), " is kept for ")
		if kept || p.Labels[gangLabel] != "" || p.Spec.NodeName != "" || p.DeletionTimestamp != nil || ended(p) || err != nil || node == "" {
			continue
		}
		return fmt.Sprintf("pod %s (%d GPUs, %v) fits node %s; the scheduler says %q%s", p.Name, gpusOf(p), wishesOf(p), node, refusal(p), e.beliefs(ctx, node))
	}
	return ""
}

// endOne ends the first running pod by name, and returns nil if none runs.
func (e *testEnv) endOne(ctx context.Context) (*v1.Pod, error) {
	list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
			return p, e.finish(ctx, p)
		}
	}
	return nil, nil
}
