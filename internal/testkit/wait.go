// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"slices"
	"testing"
	"time"
)

const (
	// firstPoll is Eventually's first pause. Each pause is twice the one before, up to slowestPoll: most
	// conditions take milliseconds, and an API server that many tests poll needs its time for them.
	firstPoll   = 2 * time.Millisecond
	slowestPoll = 50 * time.Millisecond
	// patience is Soon's limit for conditions that should take milliseconds. On an overloaded machine they
	// took more than half a minute.
	patience = 2 * time.Minute
)

// Eventually polls ask until it returns done. After the limit it fails the test with what, the expected
// event, and with the state seen last.
func Eventually(tb testing.TB, limit time.Duration, what string, ask func(ctx context.Context) (done bool, seen string)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	for last, pause := "", firstPoll; ; pause = min(2*pause, slowestPoll) {
		done, seen := ask(ctx)
		if done {
			return
		}
		if ctx.Err() == nil || last == "" { // a result that was cut off is not reported
			last = seen
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: not within %v; last seen: %s", what, limit, last)
		case <-time.After(pause):
		}
	}
}

// Soon waits for a condition that should hold within milliseconds, and fails the test if it does not
// within two minutes.
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

// request is a request to a fake API server, client-go's Action.
type request interface {
	Matches(verb, resource string) bool
}

// Watched waits until a fake API server has received a watch of each resource, such as pods. An informer
// lists first and watches then, and reports after its list that it is in sync; a fake server does not
// send it the changes in between. asked returns the server's requests, as the method Actions of
// client-go's fakes does.
func Watched[R request](tb testing.TB, asked func() []R, resources ...string) {
	tb.Helper()
	for _, resource := range resources {
		Soon(tb, "a watch of "+resource, func() bool {
			return slices.ContainsFunc(asked(), func(r R) bool { return r.Matches("watch", resource) })
		})
	}
}
