// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestFairTurns: after a change without an event all pods are activated once, by priority, 64 a second,
// or at once if none could be tried before. Pods that are gated, bound, of other schedulers or members of
// gangs are not: 2,000 older members delayed a pod without GPUs by half a minute.
func TestFairTurns(t *testing.T) {
	tests := map[string]struct {
		wake      func(*Waker)
		unsynced  bool
		wantTurns []int // how many pods are activated, second by second
	}{
		"a change":            {wake: (*Waker).WakeOthers, wantTurns: []int{64, 64, 22}},
		"after the first":     {wake: (*Waker).WakeAllOthers, wantTurns: []int{150}},
		"before the lists":    {wake: (*Waker).WakeOthers, unsynced: true},
		"several at a time":   {wake: func(k *Waker) { k.WakeOthers(); k.WakeOthers() }, wantTurns: []int{64, 64, 22}},
		"nobody asked for it": {wake: func(*Waker) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				c := &fakeCluster{pods: map[types.UID]*v1.Pod{}}
				k := New(clock.RealClock{}, c)
				add := func(name string, change func(*v1.Pod)) *v1.Pod {
					pod := schedtest.Pod(name).Scheduler("ours").Priority(1).Obj()
					change(pod)
					c.pods[pod.UID] = pod
					if err := store.Add(pod); err != nil {
						t.Fatal(err)
					}
					return pod
				}
				for i := range 150 {
					add(fmt.Sprintf("pod-%03d", i), func(pod *v1.Pod) { pod.Spec.Priority = new(int32(i % 3)) })
				}
				for i := range 2000 {
					add(fmt.Sprintf("member-%04d", i), func(pod *v1.Pod) { pod.Labels, pod.Spec.Priority = map[string]string{"member": "yes"}, new(int32(9)) })
				}
				add("bound", func(pod *v1.Pod) { pod.Spec.NodeName = "n" })
				add("another's", func(pod *v1.Pod) { pod.Spec.SchedulerName = "theirs" })
				k.Add(refused(add("gated", func(*v1.Pod) {}), 1))
				c.unsynced = tc.unsynced

				var turns []int
				lowest := int32(2)
				activate := func(_ klog.Logger, pods map[string]*v1.Pod) {
					turns = append(turns, len(pods))
					highest := int32(0)
					for _, pod := range pods {
						highest = max(highest, *pod.Spec.Priority)
					}
					if highest > lowest {
						t.Errorf("a pod of priority %d has its turn after one of %d", highest, lowest)
					}
					for _, pod := range pods {
						lowest = min(lowest, *pod.Spec.Priority)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.wake(k)
				go k.RunOthers(ctx, corelisters.NewPodLister(store), activate)
				time.Sleep(time.Minute)
				synctest.Wait()
				if !slices.Equal(turns, tc.wantTurns) {
					t.Errorf("%v pods had their turn, want %v", turns, tc.wantTurns)
				}
			})
		})
	}
}
