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

// listsPatience is how long pods with GPUs wait for the first lists before they are tried
// in vain, which costs a write each, and tells their owners what they wait for.
const listsPatience = 5 * time.Second

// FirstLists says whether the first lists of graphs and Leases are in: a choice from half the
// graphs would put pods on the worse nodes.
type FirstLists struct {
	clock clock.Clock
	done  func() // called when the lists are in
	in    atomic.Bool

	mu      sync.Mutex             // guards all below
	sources []cache.InformerSynced // whose lists they are
	wait    *listsWait             // the last that began
}

// listsWait is one wait for them.
type listsWait struct {
	over  chan struct{} // closed when they are in
	until time.Time     // when nobody waits any more; zero while nobody has. Guarded by FirstLists.mu
}

func newFirstLists(clk clock.Clock) *FirstLists {
	return &FirstLists{clock: clk, done: func() {}, wait: &listsWait{over: make(chan struct{})}}
}

// add has the next call of AwaitSync wait for one more list.
func (f *FirstLists) add(source cache.InformerSynced) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources = append(f.sources, source)
}

// AwaitSync starts the wait for the first lists of graphs and Leases; call it
// after Connect and Graphs.Watch. Until they are in, Synced is false; then all pods and gangs that
// wait are tried. A later call replaces the wait of an earlier one.
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

// Synced reports whether all graphs and Leases there were at the start are known.
func (f *FirstLists) Synced() bool { return f.in.Load() }

// Await waits until Synced, but not long: five seconds in all after each AwaitSync,
// however many ask.
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
