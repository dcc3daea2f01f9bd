// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// firstRetry is the delay after the first round that failed.
const firstRetry = 500 * time.Millisecond

// stuckAfter, plus some intervals, is longer than a round's requests may take.
const stuckAfter = 2 * time.Minute

// Run compares and publishes until ctx ends, and then returns nil. Errors are logged, and the round is
// retried.
func (v *Verifier) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", v.cfg.Node))
	v.finished.Store(v.clock.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { nodelease.Keep(ctx, v.clock, v.random, v.vouching, v.renew) })
	wg.Go(func() { v.watchRecord(ctx) })
	v.runRounds(ctx)
	wg.Wait()
	return nil
}

func (v *Verifier) runRounds(ctx context.Context) {
	timer := v.clock.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.kick:
		case <-timer.C():
		}
		v.keepOff(ctx)
		again, err := v.round(ctx)
		v.finished.Store(v.clock.Now().UnixNano())
		if ctx.Err() != nil {
			return
		}
		wait := v.cfg.Interval
		if again > 0 {
			wait = min(wait, again)
		}
		if err == nil {
			failures = 0
		} else {
			klog.FromContext(ctx).Error(err, "Publishing what kubelet recorded failed, will retry")
			wait = min(wait, nodelease.Backoff(firstRetry, v.cfg.Interval, failures, v.random()))
			failures++
		}
		// Events that come within the gap are handled by one round after it.
		if !v.sleep(ctx, v.cfg.MinGap) {
			return
		}
		restart(timer, max(wait-v.cfg.MinGap, 0))
	}
}

// keepOff waits up to busyLimit until the agent has answered kubelet: the agent has little CPU on the
// node, and kubelet waits for the answer.
func (v *Verifier) keepOff(ctx context.Context) {
	for deadline := v.clock.Now().Add(busyLimit); v.cfg.Busy() && v.clock.Now().Before(deadline); {
		if !v.sleep(ctx, busyPoll) {
			return
		}
	}
}

// sleep waits for d and returns true, or false if ctx ended first.
func (v *Verifier) sleep(ctx context.Context, d time.Duration) bool {
	timer := v.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// renew renews the Lease while the node is published as enforced.
func (v *Verifier) renew(ctx context.Context) error {
	uid := v.vouched.Load()
	if uid == nil {
		return nil
	}
	err := v.api.applyLease(ctx, *uid, v.clock.Now())
	if err != nil {
		v.metrics.failures.Inc()
	}
	return err
}

// restart sets a timer again, whether or not its last tick was read.
func restart(t clock.Timer, d time.Duration) {
	if !t.Stop() {
		select {
		case <-t.C():
		default:
		}
	}
	t.Reset(d)
}

// Healthy returns an error if a round has run far longer than it may take. A failing
// API server or kubelet is no reason to restart the process.
func (v *Verifier) Healthy() error {
	finished := v.finished.Load()
	if finished == 0 {
		return nil // not running yet
	}
	if age := v.clock.Since(time.Unix(0, finished)); age > 3*v.cfg.Interval+stuckAfter {
		return fmt.Errorf("the last comparison with kubelet's record ended %s ago", age.Round(time.Second))
	}
	return nil
}
