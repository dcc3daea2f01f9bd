// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestListSync: pods wait for the list that came last. The definition of NodeGPUTopology is installed
// while the Leases are still being listed: their list alone must not release pods.
func TestListSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leases, graphs atomic.Bool
		s := New(testConfig(), &tickClock{now: time.Now()})
		s.Lists.add(leases.Load)
		s.Lists.AwaitSync(t.Context())
		s.Lists.add(graphs.Load)
		s.Lists.AwaitSync(t.Context())
		for _, tc := range []struct {
			what *atomic.Bool
			want bool
		}{{&leases, false}, {&graphs, true}} {
			tc.what.Store(true)
			time.Sleep(time.Second)
			if got := s.Lists.Synced(); got != tc.want {
				t.Errorf("leases %t, graphs %t: synced %t, want %t", leases.Load(), graphs.Load(), got, tc.want)
			}
		}
	})
}

// TestListWaitTime: the wait for the lists is short. The test measures how long scheduling cycles wait.
func TestListWaitTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed atomic.Bool
		s := New(testConfig(), clock.RealClock{})
		s.Lists.add(listed.Load)
		takes := func(ctx context.Context, want time.Duration, what string) {
			t.Helper()
			begin := time.Now()
			s.Lists.Await(ctx)
			if got := time.Since(begin).Truncate(200 * time.Millisecond); got != want {
				t.Errorf("%s waits for %v, want %v", what, got, want)
			}
		}
		s.Lists.AwaitSync(t.Context())
		time.Sleep(time.Minute) // to be elected
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		takes(gone, time.Second, "the first, which ends,")
		takes(t.Context(), listsPatience-time.Second, "the second")
		takes(t.Context(), 0, "the third")
		s.Lists.AwaitSync(t.Context()) // another list
		time.AfterFunc(3*time.Second, func() { listed.Store(true) })
		takes(t.Context(), 3*time.Second, "one whose list comes")
		if !s.Lists.Synced() {
			t.Error("it waited for the list, and that is not in")
		}
		takes(t.Context(), 0, "one after it")
	})
}

// TestFirstLists: the end of the first lists is reported. Gangs that wait for them are tried again, like
// other pods.
func TestFirstLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed atomic.Bool
		s := New(testConfig(), &tickClock{now: time.Now()})
		told := 0
		s.Changes.OnRoom(func() {
			if told++; !s.Lists.Synced() {
				t.Error("told before the lists are in")
			}
		})
		s.Lists.add(listed.Load)
		s.Lists.AwaitSync(t.Context())
		time.Sleep(time.Second)
		listed.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times of room, want once", told)
		}
	})
}
