// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// firstRetry is the delay after the first failed renewal, lastRetry the longest after several. A Lease
// has to last for 35 s, the greatest age of its last renewal, and for the API server's outage, and for
// lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Second
)

// Keep calls renew until ctx ends: at once for each token of wake, and every Renewal ± jitter. It has its
// own schedule, so that a daemon that blocks elsewhere does not make the node look dead. Failures are
// logged and retried soon. random is in [0, 1).
func Keep(ctx context.Context, clk clock.Clock, random func() float64, wake <-chan struct{}, renew func(context.Context) error) {
	timer := clk.NewTimer(Renewal)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			timer.Stop()
		case <-timer.C():
		}
		err := renew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			timer.Reset(Next(random()))
			continue
		}
		klog.FromContext(ctx).Error(err, "Renewing the Lease failed, will retry")
		timer.Reset(Backoff(firstRetry, lastRetry, failures, random()))
		failures++
	}
}

// Backoff returns the delay after a failure: first, doubled for each earlier failure, up to limit, with
// up to a fifth taken off by random in [0, 1) so that a fleet does not return in step.
func Backoff(first, limit time.Duration, failures int, random float64) time.Duration {
	d := min(first<<min(failures, 20), limit)
	return d - time.Duration(random*float64(d)/5)
}
