// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// TestPlacementTurns: placements are written in turn. A gang that is whole again before its turn has one
// write, for its last attempt.
func TestPlacementTurns(t *testing.T) {
	t.Parallel()
	p := newPlacements()
	put := func(name string, attempt int64) { p.put(&gangstate.Commit{Key: gangNamed(name), Attempt: attempt}) }
	type written struct {
		Gang    gangrequest.Key
		Attempt int64
	}
	var got []written
	take := func() {
		if c := p.take(); c != nil {
			got = append(got, written{c.Key, c.Attempt})
		}
	}
	put("a", 1)
	put("b", 1)
	put("a", 2)
	take()
	take()
	put("a", 3)
	take()
	p.queue.ShutDown()
	take()
	want := []written{{gangNamed("a"), 2}, {gangNamed("b"), 1}, {gangNamed("a"), 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// TestRequeuedGang: a gang may be queued again while it is taken: it is in the queue once more, with
// nothing left to be written. The worker took that for the end of the process.
func TestRequeuedGang(t *testing.T) {
	t.Parallel()
	p := newPlacements()
	put := func(name string, attempt int64) { p.put(&gangstate.Commit{Key: gangNamed(name), Attempt: attempt}) }
	put("a", 1)
	key, _ := p.queue.Get() // take's first step
	put("a", 2)
	p.queue.Done(key)
	delete(p.of, key) // its second
	put("b", 1)
	if c := p.take(); c == nil || c.Key != gangNamed("b") {
		t.Errorf("took %+v, want gang b", c)
	}
}
