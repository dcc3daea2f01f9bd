// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the Lease of the election, in the project's namespace.
const LeaseName = "nvtopo-controller"

// kube-scheduler's defaults, not read from its configuration. It does no harm if there
// is no leader for a while.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lead takes part in the election among the processes that call it. It calls run for
// each term of this process, with a context that ends with the term. It returns when
// ctx ends.
func Lead(ctx context.Context, client kubernetes.Interface, namespace string, run func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("naming the candidate: %w", err)
	}
	term := make(chan struct{}, 1) // full during a term; the next begins after run has returned
	config := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				select {
				case term <- struct{}{}:
					run(ctx)
					<-term
				case <-ctx.Done(): // the term ended before it began
				}
			},
			OnStoppedLeading: func() {},
		},
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(config)
		if err != nil {
			return fmt.Errorf("electing the holder of Lease %s/%s: %w", namespace, LeaseName, err)
		}
		elector.Run(ctx) // one term, or none before ctx ends
	}
	term <- struct{}{}
	return nil
}
