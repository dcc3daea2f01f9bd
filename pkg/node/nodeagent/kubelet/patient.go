// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// busyWait is how long it takes until kubelet's limit allows one more request: 100
// requests a second for all clients of the node together (with a burst of 10).
const busyWait = 10 * time.Millisecond

// Getter is the part of PodResources that is rate limited and called often.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (Devices, error)
	ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error)
}

// Patient asks again while kubelet is busy, for as long as the caller's context allows.
// It never returns "busy" as an answer about the pod.
type Patient struct {
	inner Getter
	clock clock.Clock
}

// NewPatient wraps a Getter.
func NewPatient(inner Getter, clk clock.Clock) *Patient { return &Patient{inner: inner, clock: clk} }

// Get is the inner Get without ErrBusy. If the context ends first, the error is both
// ErrBusy and the context's.
func (p *Patient) Get(ctx context.Context, namespace, name string) (Devices, error) {
	return again(ctx, p.clock, func() (Devices, error) { return p.inner.Get(ctx, namespace, name) })
}

// ActivePods is the inner ActivePods, in the same way, but sends no request once
// patience is over. It waits for the answer to a request that was sent, for as long as
// ctx lasts: kubelet's cleanup should be over when the caller goes on.
func (p *Patient) ActivePods(ctx context.Context, patience time.Duration) (map[types.NamespacedName]bool, error) {
	while, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return again(while, p.clock, func() (map[types.NamespacedName]bool, error) { return p.inner.ActivePods(ctx) })
}

func again[T any](ctx context.Context, clk clock.Clock, ask func() (T, error)) (T, error) {
	for {
		answer, err := ask()
		if !errors.Is(err, ErrBusy) {
			return answer, err
		}
		timer := clk.NewTimer(busyWait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return answer, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-timer.C():
		}
	}
}
