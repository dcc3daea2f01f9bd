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

// busyWait is how long one token of kubelet's limit takes to come back: 100
// questions a second, all clients of the node together (a burst of 10 is kept).
const busyWait = 10 * time.Millisecond

// Getter is the part of PodResources that is rate limited and asked often.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (Devices, error)
	ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error)
}

// Patient asks again while kubelet is busy, for as long as the caller's context
// allows, and counts nothing as an answer that is none.
type Patient struct {
	inner Getter
	clock clock.Clock
}

// NewPatient wraps a Getter.
func NewPatient(inner Getter, clk clock.Clock) *Patient { return &Patient{inner: inner, clock: clk} }

// Get is the inner Get without ErrBusy, unless the context ends first: then the
// error is both ErrBusy and the context's.
func (p *Patient) Get(ctx context.Context, namespace, name string) (Devices, error) {
	return again(ctx, p.clock, func() (Devices, error) { return p.inner.Get(ctx, namespace, name) })
}

// ActivePods is the inner ActivePods, in the same way, but sends no request once patience
// is over. One that kubelet has got is waited for as long as the caller can: what cleans
// up is not to be under way when the caller goes on.
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
