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
	// backlog is how many pods wait while GPUs come free, more than there is room for.
	backlog = 60
	// releases is how many pods end then, one after the other.
	releases   = 12
	watchEvery = 500 * time.Millisecond
)

// releaseOneByOne lets many pods wait and running ones end, and fails if one waits for good
// that fits: what each leaves is used before the next ends, and nothing else happens that would
// wake those that wait. It is played between calm and the end of all pods.
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

// used waits until no pod waits that some node has GPUs for, and what ended is out of
// kubelet's record.
func (e *testEnv) used(ctx context.Context) bool {
	var left string
	err := wait.PollUntilContextTimeout(ctx, watchEvery, patience, true, func(ctx context.Context) (bool, error) {
		list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		switch {
		case ctx.Err() != nil: // says less than what was left before
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

// dying names a pod that ended of which a kubelet still has GPUs, and empty for none.
func (e *testEnv) dying(pods []v1.Pod) string {
	for i := range pods {
		if b := e.boxOf(pods[i].Spec.NodeName); b != nil && ended(&pods[i]) && b.kubelet.holding()[pods[i].UID] != nil {
			return fmt.Sprintf("kubelet of %s has GPUs of %s, which ended", b.name, pods[i].Name)
		}
	}
	return ""
}

// fitting names a pod that waits and fits a node, empty for none.
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
