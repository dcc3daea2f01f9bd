// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// settleFailures makes the scheduling queue forget every attempt that failed. While one
// is in flight the queue keeps all events since its start, and kube-scheduler 1.35.4
// ends the attempt of the pod that has the name by then: one that was deleted and made
// anew meanwhile stayed in flight, and memory grew without bound
// (kubernetes/kubernetes#138316, mended on the release branch after 1.35.4).
func settleFailures(sched *scheduler.Scheduler, pods corelisters.PodLister) {
	handle := sched.FailureHandler
	sched.FailureHandler = func(
		ctx context.Context, fw framework.Framework, p *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time,
	) {
		failed := p.Pod // handle may put another in its place
		handle(ctx, fw, p, status, nominating, start)
		// A pod that is still there may be in flight again already.
		if now, err := pods.Pods(failed.Namespace).Get(failed.Name); err != nil || now.UID != failed.UID {
			sched.SchedulingQueue.Done(failed.UID)
		}
	}
}
