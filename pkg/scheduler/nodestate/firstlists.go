// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// listsPatience is how long pods with GPUs wait for the first lists. After that they are tried and
// refused, which costs a write each, and the refusal tells their owners the reason.
const listsPatience = 5 * time.Second

// FirstLists tracks whether the first lists of graphs and Leases are in: a choice made from half the
// graphs would put pods on worse nodes.
type FirstLists struct {
	clock clock.Clock
	done  func() // called when the lists are in
	in    atomic.Bool

	mu      sync.Mutex             // guards all below
	sources []cache.InformerSynced // the informers whose lists are awaited
	wait    *listsWait             // the latest wait
}

// listsWait is one wait for the first lists.
type listsWait struct {
	over  chan struct{} // closed when they are in
	until time.Time     // end of the wait; zero until the first call of Await. Guarded by FirstLists.mu
}

func newFirstLists(clk clock.Clock) *FirstLists {
	return &FirstLists{clock: clk, done: func() {}, wait: &listsWait{over: make(chan struct{})}}
}

// add makes the next call of AwaitSync wait for one more informer.
func (f *FirstLists) add(source cache.InformerSynced) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources = append(f.sources, source)
}

// AwaitSync starts the wait for the first lists of graphs and Leases; call it after Connect and
// Graphs.Watch. Synced returns false until they are in; then all waiting pods and gangs are tried. A
// later call replaces the wait of an earlier one.
func (f *FirstLists) AwaitSync(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sources := f.sources
	wait := &listsWait{over: make(chan struct{})}
	f.wait = wait
	f.in.Store(false)
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), sources...) {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if wait == f.wait {
			f.in.Store(true)
			f.done()
			close(wait.over)
		}
	}()
}

// Synced reports whether all graphs and Leases that existed at the start are known.
func (f *FirstLists) Synced() bool { return f.in.Load() }

// Await waits until Synced, for at most five seconds in all after each AwaitSync, regardless of the
// number of callers.
func (f *FirstLists) Await(ctx context.Context) {
	f.mu.Lock()
	wait, now := f.wait, f.clock.Now()
	if wait.until.IsZero() {
		wait.until = now.Add(listsPatience)
	}
	left := wait.until.Sub(now)
	f.mu.Unlock()
	if left <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-wait.over:
	case <-f.clock.After(left):
	}
}
