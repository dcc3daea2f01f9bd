// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPodsWaitForTheListThatCameLast has the definition of NodeGPUTopology installed while
// the Leases are still being listed: their list alone must not let pods go.
func TestPodsWaitForTheListThatCameLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leases, graphs atomic.Bool
		s := New(testConfig(), &tickClock{now: time.Now()})
		s.sources = append(s.sources, leases.Load)
		s.AwaitSync(t.Context())
		s.sources = append(s.sources, graphs.Load)
		s.AwaitSync(t.Context())
		for _, tc := range []struct {
			what *atomic.Bool
			want bool
		}{{&leases, false}, {&graphs, true}} {
			tc.what.Store(true)
			time.Sleep(time.Second)
			if got := s.Synced(); got != tc.want {
				t.Errorf("leases %t, graphs %t: synced %t, want %t", leases.Load(), graphs.Load(), got, tc.want)
			}
		}
	})
}
