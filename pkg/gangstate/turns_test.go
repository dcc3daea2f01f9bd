// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"
)

// TestAMemberAboveTheMinimumThatFitsNowhere: the first one without room kept all others from
// being tried.
func TestAMemberAboveTheMinimumThatFitsNowhere(t *testing.T) {
	t.Parallel()
	const size, all = 2, 7
	r := newRig(t, 100, 1, false)
	r.never = map[string]bool{"a-2": true, "a-4": true}
	for i := range all {
		r.set(member("a", size, fmt.Sprintf("a-%d", i), 0))
	}
	r.settle(30)
	for r.cycle() { // of the last round
	}
	r.nothingHeld()
	if bound := r.counts("a", all); bound != all-2 {
		t.Errorf("%d members are bound, want all but those that fit nowhere", bound)
	}
	r.gangs.mu.Lock()
	waits := r.gangs.byPod[r.pods["a-2"].UID].waits
	r.gangs.mu.Unlock()
	if waits == nil || !waits.ForChange {
		t.Fatalf("the gang waits for %+v, want a change", waits)
	}
	tries := r.tries
	r.clock.Step(time.Minute)
	r.gangs.tick()
	for r.cycle() {
	}
	if r.tries != tries {
		t.Errorf("%d plans without any change", r.tries-tries)
	}
	r.mu.Lock()
	delete(r.never, "a-4")
	r.mu.Unlock()
	r.settle(10)
	if bound := r.counts("a", all); bound != all-1 {
		t.Errorf("%d members are bound once a node takes another one, want %d", bound, all-1)
	}
}
