// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
)

// firstRetry is the delay after the first failure; each further one doubles it, up
// to the interval.
const firstRetry = 500 * time.Millisecond

// stuckAfter, with some intervals, is longer than a round's requests may take.
const stuckAfter = 2 * time.Minute

// Run compares and publishes until the context ends, and then returns nil. What
// goes wrong is logged and tried again.
func (v *Verifier) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", v.cfg.Node))
	v.finished.Store(v.clock.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { v.runLease(ctx) })
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
			wait = min(wait, v.retryAfter(failures))
			failures++
		}
		// What comes within the gap is one round at its end.
		if !v.sleep(ctx, v.cfg.MinGap) {
			return
		}
		restart(timer, max(wait-v.cfg.MinGap, 0))
	}
}

// keepOff waits a moment for kubelet's questions to be answered first: the node has
// few CPUs to spare for the agent, and kubelet waits for the answer.
func (v *Verifier) keepOff(ctx context.Context) {
	for deadline := v.clock.Now().Add(busyLimit); v.cfg.Busy() && v.clock.Now().Before(deadline); {
		if !v.sleep(ctx, busyPoll) {
			return
		}
	}
}

// sleep reports whether the time passed; if not, the context ended.
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

// retryAfter doubles from firstRetry up to the interval, with a fifth of it taken
// off at random so that a fleet does not return in step.
func (v *Verifier) retryAfter(failures int) time.Duration {
	d := min(firstRetry<<min(failures, 20), v.cfg.Interval)
	return d - time.Duration(v.random()*float64(d)/5)
}

// runLease renews the Lease on its own schedule: an API server that takes long with
// the status must not make the node look unenforced while it is.
func (v *Verifier) runLease(ctx context.Context) {
	timer := v.clock.NewTimer(nodelease.Renewal)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.vouching:
		case <-timer.C():
		}
		wait := nodelease.Next(v.random())
		if uid := v.vouched.Load(); uid != nil {
			if err := v.renew(ctx, *uid); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Renewing the Lease failed, will retry")
				wait = min(v.retryAfter(failures), wait)
				failures++
			} else {
				failures = 0
			}
		}
		restart(timer, wait)
	}
}

func (v *Verifier) renew(ctx context.Context, uid types.UID) error {
	err := v.api.applyLease(ctx, uid, v.clock.Now())
	if err != nil {
		v.metrics.failures.Inc()
	}
	return err
}

// restart sets a timer anew, whether its last time was taken or not.
func restart(t clock.Timer, d time.Duration) {
	if !t.Stop() {
		select {
		case <-t.C():
		default:
		}
	}
	t.Reset(d)
}

// Healthy says whether Run makes progress: an error means that a round has not
// ended for far longer than it may take. A failing API server or kubelet is no
// reason to restart the process.
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
