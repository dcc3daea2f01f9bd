// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// nap is short to what tests wait for, and long to a machine that has nothing else to do.
const nap = 10 * time.Millisecond

// Naps sleeps for some time in naps of 10 ms. A busy machine has each nap take longer, as it
// has what the test cannot see and gives time to: an informer that has to hear of a change.
func Naps(d time.Duration) {
	for ; d > 0; d -= nap {
		time.Sleep(min(d, nap))
	}
}

// Napping measures how long something takes by the naps of 10 ms that are taken meanwhile.
// A busy machine has them take longer, so that they are fewer: what keeps its time, but is
// let run late, is not said to be too slow. The measure ends when it is read.
func Napping(tb testing.TB) (elapsed func() time.Duration) {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	var naps atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			time.Sleep(nap)
			naps.Add(1)
		}
	}()
	return func() time.Duration {
		stop()
		<-ended
		return time.Duration(naps.Load()) * nap
	}
}
