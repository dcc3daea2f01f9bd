// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

const (
	// minGap is the least time between two rounds: several events within it cause one reading.
	minGap = time.Second
	// firstRetry is the delay after the first failure.
	firstRetry = time.Second
)

// Run publishes until ctx ends, and then returns nil. Errors are logged and the round is retried, except
// if the library does not fit the kernel driver: this process cannot recover then, and Run returns an
// error that says so.
func (e *Exporter) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", e.cfg.NodeName))
	e.finished.Store(e.clock.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { nodelease.Keep(ctx, e.clock, e.random, e.vouching, e.renew) })
	err := e.runRounds(ctx)
	cancel()
	wg.Wait()
	return err
}

func (e *Exporter) runRounds(ctx context.Context) error {
	events := e.src.Events(ctx)
	timer := e.clock.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			klog.FromContext(ctx).Info("The driver reports an event", "gpu", ev.UUID, "xid", ev.Xid)
			timer.Stop()
			timer.Reset(max(0, minGap-e.clock.Since(last)))
			continue
		case <-timer.C():
		}
		err := e.publish(ctx)
		last = e.clock.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			failures = 0
			timer.Reset(e.cfg.Interval)
			continue
		}
		if nvml.IsMismatch(err) {
			return fmt.Errorf("the driver was updated and this process must be restarted: %w", err)
		}
		klog.FromContext(ctx).Error(err, "Publishing failed, will retry")
		timer.Reset(nodelease.Backoff(firstRetry, e.cfg.Interval, failures, e.random()))
		failures++
	}
}

// Healthy returns an error if a round has run far longer than it may take. A failing
// API server or driver is no reason to restart the process.
func (e *Exporter) Healthy() error {
	finished := e.finished.Load()
	if finished == 0 {
		return nil // not running yet
	}
	limit := 3*e.cfg.Interval + 5*time.Minute
	if age := e.clock.Since(time.Unix(0, finished)); age > limit {
		return fmt.Errorf("the last round ended %s ago", age.Round(time.Second))
	}
	return nil
}
