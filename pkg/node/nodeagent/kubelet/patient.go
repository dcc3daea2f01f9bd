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

// busyWait is the time after which kubelet's rate limit allows one more request: 100 requests a second
// for all clients of the node together (with a burst of 10).
const busyWait = 10 * time.Millisecond

// Getter is the rate-limited part of PodResources that is called often.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (Devices, error)
	ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error)
}

// Patient repeats requests while kubelet is busy, for as long as the caller's context allows, so that a
// caller never mistakes ErrBusy for a fact about the pod.
type Patient struct {
	inner Getter
	clock clock.Clock
}

// NewPatient returns a Patient that sends its requests to inner.
func NewPatient(inner Getter, clk clock.Clock) *Patient { return &Patient{inner: inner, clock: clk} }

// Get calls the inner Get until it does not return ErrBusy. If the context ends first, the error wraps
// both ErrBusy and the context's error.
func (p *Patient) Get(ctx context.Context, namespace, name string) (Devices, error) {
	return again(ctx, p.clock, func() (Devices, error) { return p.inner.Get(ctx, namespace, name) })
}

// ActivePods calls the inner ActivePods in the same way, but sends no request after patience has passed.
// It waits for the response to a request already sent, for as long as ctx lasts: kubelet's cleanup should
// be over when the caller continues.
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
