// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"slices"
	"testing"
	"time"
)

const (
	// firstPoll is how long Eventually waits before it looks again. It waits twice as long
	// each time, up to slowestPoll: most things take milliseconds, and an API server that
	// is asked by many tests needs its time for them.
	firstPoll   = 2 * time.Millisecond
	slowestPoll = 50 * time.Millisecond
	// patience is how long a test waits for what should take milliseconds. On a machine that has
	// too much to do such things took more than half a minute.
	patience = 2 * time.Minute
)

// Eventually asks again and again until the answer is that it is done. After the limit it
// fails the test, with what was to happen and what was seen last.
func Eventually(tb testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (done bool, seen string)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	for last, pause := "", firstPoll; ; pause = min(2*pause, slowestPoll) {
		done, seen := ask(ctx)
		if done {
			return
		}
		if ctx.Err() == nil || last == "" { // that an answer was cut off says nothing
			last = seen
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: not within %v; last seen: %s", what, limit, last)
		case <-time.After(pause):
		}
	}
}

// Soon waits for what should happen within milliseconds, and fails the test when it does
// not within two minutes.
func Soon(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			tb.Fatalf("not within %v: %s", patience, what)
		case <-time.After(firstPoll):
		}
	}
}

// request is what a fake API server was asked: client-go calls it an Action.
type request interface {
	Matches(verb, resource string) bool
}

// Watched waits until a fake API server has been asked for a watch of each resource, such
// as pods. An informer lists first and watches then, and says after its list that it is in
// step; a fake server forgets what it was told in between, so the informer never hears of it.
// asked returns what the server was asked, as the method Actions of client-go's fakes.
func Watched[R request](tb testing.TB, asked func() []R, resources ...string) {
	tb.Helper()
	for _, resource := range resources {
		Soon(tb, "a watch of "+resource, func() bool {
			return slices.ContainsFunc(asked(), func(r R) bool { return r.Matches("watch", resource) })
		})
	}
}
