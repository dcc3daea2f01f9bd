// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// TestNoFailedAttemptStaysInFlight fails the attempt of a pod on a real queue, with a
// handler that does what kube-scheduler's does: it puts back the pod of that name.
func TestNoFailedAttemptStaysInFlight(t *testing.T) {
	for name, tc := range map[string]struct {
		now          types.UID // of the pod that has the name by then; empty: none
		popped       bool      // it is in flight again when the handler returns
		wantInFlight []types.UID
	}{
		"the pod is still there":                    {now: "first"},
		"it is tried again already":                 {now: "first", popped: true, wantInFlight: []types.UID{"first"}},
		"it was deleted":                            {},
		"it was deleted and made anew":              {now: "second"},
		"it was made anew, and that is being tried": {now: "second", popped: true, wantInFlight: []types.UID{"second"}},
	} {
		t.Run(name, func(t *testing.T) {
			metrics.Register()
			logger, ctx := ktesting.NewTestContext(t)
			sorter := &queuesort.PrioritySort{}
			queue := internalqueue.NewTestQueue(ctx, sorter.Less)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			sched := &scheduler.Scheduler{SchedulingQueue: queue}
			sched.FailureHandler = func(
				_ context.Context, _ framework.Framework, p *framework.QueuedPodInfo, _ *fwk.Status, _ *fwk.NominatingInfo, _ time.Time,
			) {
				if tc.now == "" {
					queue.Done(p.Pod.UID)
					return
				}
				info, err := framework.NewPodInfo(podOf(tc.now))
				if err != nil {
					t.Fatal(err)
				}
				p.PodInfo = info
				if err := queue.AddUnschedulableIfNotPresent(logger, p, queue.SchedulingCycle()); err != nil {
					t.Fatal(err)
				}
				if tc.popped {
					queue.Activate(logger, map[string]*v1.Pod{"p": podOf(tc.now)})
					pop(t, queue)
				}
			}
			settleFailures(sched, corelisters.NewPodLister(store))

			queue.Add(logger, podOf("first"))
			attempt := pop(t, queue)
			if tc.now != "" {
				if err := store.Add(podOf(tc.now)); err != nil {
					t.Fatal(err)
				}
			}
			sched.FailureHandler(ctx, nil, attempt, fwk.NewStatus(fwk.Error, "injected"), nil, time.Time{})
			var got []types.UID
			for _, pod := range queue.InFlightPods() {
				got = append(got, pod.UID)
			}
			if diff := cmp.Diff(tc.wantInFlight, got); diff != "" {
				t.Errorf("in flight (-want,+got):\n%s", diff)
			}
		})
	}
}

func podOf(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid}}
}

func pop(t *testing.T, queue internalqueue.SchedulingQueue) *framework.QueuedPodInfo {
	t.Helper()
	logger, _ := ktesting.NewTestContext(t)
	p, err := queue.Pop(logger)
	if err != nil || p == nil {
		t.Fatalf("pop %v: %v", p, err)
	}
	return p
}
