// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// busyWait is how long one token of kubelet's limit takes to come back: 100
// questions a second, all clients of the node together (a burst of 10 is kept).
const busyWait = 10 * time.Millisecond

// Getter is the part of PodResources that is rate limited and asked often.
type Getter interface {
	Get(ctx context.Context, namespace, name string) (Devices, error)
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
	for {
		d, err := p.inner.Get(ctx, namespace, name)
		if !errors.Is(err, ErrBusy) {
			return d, err
		}
		timer := p.clock.NewTimer(busyWait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-timer.C():
		}
	}
}
