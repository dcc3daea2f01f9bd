// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"sync"
)

// debts are references on the library and event sets that could not be given back: while an abandoned
// call is still inside the library, both could be freed under it. They are given back by the next release
// or discard that finds no such call, which is the end of the next reading at the latest.
type debts struct {
	mu   sync.Mutex // held while giving back, so that nothing is given back twice
	refs int        // guarded by mu
	sets []EventSet // guarded by mu
}

const freeSet = "free event set" // a sequence of the watchdog

// release gives back one reference.
func (d *Discoverer) release(ctx context.Context) {
	d.debts.mu.Lock()
	defer d.debts.mu.Unlock()
	d.debts.refs++
	d.settle(ctx)
}

// discard gives back an event set and the reference it was made under. An idle set is freed at once even
// if other calls are stuck: none of them is in it.
func (d *Discoverer) discard(ctx context.Context, set EventSet, idle bool) {
	d.debts.mu.Lock()
	defer d.debts.mu.Unlock()
	d.debts.refs++
	if idle && !d.dog.stuckIn(freeSet) {
		d.free(ctx, set)
	} else {
		d.debts.sets = append(d.debts.sets, set)
	}
	d.settle(ctx)
}

// settle gives back all debts that it can; the caller holds the lock.
func (d *Discoverer) settle(ctx context.Context) {
	for len(d.debts.sets) > 0 && !d.dog.stuck() {
		set := d.debts.sets[0]
		d.debts.sets = d.debts.sets[1:]
		d.free(ctx, set)
	}
	for d.debts.refs > 0 && !d.dog.stuck() {
		d.debts.refs--
		_, _ = guard(context.WithoutCancel(ctx), d.dog, "nvmlShutdown", func() (struct{}, error) { return struct{}{}, d.lib.Shutdown() })
	}
}

// free frees a set. It may be abandoned like any call; the set is then given back when the call ends.
func (d *Discoverer) free(ctx context.Context, set EventSet) {
	_, _ = guard(context.WithoutCancel(ctx), d.dog, freeSet, func() (struct{}, error) { return struct{}{}, set.Free() })
}
