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
	"k8s.io/apimachinery/pkg/types"
)

const (
	// waitLimit is how long a pod may wait, with somebody leading and without faults,
	// although a node has GPUs free that it accepts.
	waitLimit = 10 * time.Second
	// backlog is how many pods wait while GPUs come free, more than there is room for.
	backlog = 60
	// releaseEvery is how often a pod ends then, and releases how many do.
	releaseEvery = 1500 * time.Millisecond
	releases     = 12
	watchEvery   = 500 * time.Millisecond
)

// releaseOneByOne lets many pods wait and running ones end, and fails if one waits for
// longer than waitLimit that fits. It is played between calm and the end of all pods.
func (w *world) releaseOneByOne(ctx context.Context, t *testing.T) {
	t.Helper()
	for i := range backlog {
		o := &op{Pod: fmt.Sprintf("backlog-%02d", i), Want: podPlan{GPUs: []int{1 + i%4}, Profile: i % len(profiles)}}
		if err := w.create(ctx, o); err != nil {
			w.fail("%v", err)
			return
		}
	}
	since, start, next, ended := map[types.UID]time.Time{}, time.Now(), waitLimit, 0
	var longest time.Duration
	for pause(ctx, watchEvery) && time.Since(start) < 2*waitLimit+releases*releaseEvery {
		list, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || w.leader(ctx) == nil || w.blind() != "" {
			clear(since) // who does not lead wakes nobody, nor who sees nothing
			continue
		}
		longest = max(longest, w.fitting(ctx, list.Items, since))
		if longest > waitLimit {
			return
		}
		if time.Since(start) > next && ended < releases {
			next, ended = next+releaseEvery, ended+1
			if err := w.endOne(ctx, list.Items); err != nil {
				w.fail("%v", err)
				return
			}
		}
	}
	w.count("pods that ended while others waited", ended)
	w.note("with %d pods waiting and %d ending, a pod that fits waited %.1f s at most", backlog, ended, longest.Seconds())
	t.Logf("a pod that fits waited %.1f s at most while %d ended", longest.Seconds(), ended)
}

// fitting keeps since when each waiting pod fits some node, and returns the longest time.
func (w *world) fitting(ctx context.Context, pods []v1.Pod, since map[types.UID]time.Time) (longest time.Duration) {
	free := w.freeSets(pods)
	for i := range pods {
		p := &pods[i]
		node, err := w.fitsOn(p, free)
		// The place of a gang's member that is gone is kept for its replacement, for keepFreed.
		kept := strings.Contains(refusal(p), " is kept for ")
		if kept || p.Labels[gangLabel] != "" || p.Spec.NodeName != "" || p.DeletionTimestamp != nil || ended(p) || err != nil || node == "" {
			delete(since, p.UID)
			continue
		}
		if since[p.UID].IsZero() {
			since[p.UID] = time.Now()
		}
		if waited := time.Since(since[p.UID]); waited > longest {
			if longest = waited; waited > waitLimit {
				w.fail("pod %s (%d GPUs, %v) has fitted for %.1f s, now node %s; the scheduler says %q%s",
					p.Name, gpusOf(p), wishesOf(p), waited.Seconds(), node, refusal(p), w.beliefs(ctx, node))
				return longest
			}
		}
	}
	return longest
}

// endOne ends the first running pod by name.
func (w *world) endOne(ctx context.Context, pods []v1.Pod) error {
	for i := range pods {
		if p := &pods[i]; p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
			return w.finish(ctx, p)
		}
	}
	return nil
}
