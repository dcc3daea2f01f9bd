// SPDX-License-Identifier: Apache-2.0

package serverclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// Tolerance is the most by which this machine's clock may differ from the API server's: responses
	// have whole seconds, and take time.
	Tolerance = 10 * time.Second
	// believed is how long a response is valid that no later one confirms: the API server's own clock
	// may have been ahead.
	believed = time.Minute
)

// Clock is this machine's clock, or the API server's where that shows an earlier time. Its methods may be
// used concurrently.
type Clock struct {
	clock.Clock // this machine's

	mu     sync.Mutex
	server time.Time // guarded by mu; the API server's time at heard; zero before the first response
	heard  time.Time // guarded by mu; this machine's time, with its monotonic clock
	apart  bool      // guarded by mu; the clocks differ by more than the tolerance
}

// New returns a Clock that wraps this machine's clock.
func New(local clock.Clock) *Clock { return &Clock{Clock: local} }

// Now is the time by this machine's clock, or by the API server's if that is more than Tolerance behind.
func (c *Clock) Now() time.Time {
	local, server, apart := c.both()
	if apart && server.Before(local) {
		return server
	}
	return local
}

// Since is the time that has passed since t, according to Now.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// OfServer returns a clock that uses the API server's time where the two differ by more than Tolerance,
// whichever is ahead: for times that are compared with those that the API server writes.
func (c *Clock) OfServer() clock.Clock { return ofServer{c} }

type ofServer struct{ *Clock }

// Now is the time by this machine's clock, or by the API server's if the two differ by more than Tolerance.
func (c ofServer) Now() time.Time {
	local, server, apart := c.both()
	if apart {
		return server
	}
	return local
}

// Since is the time that has passed since t, according to Now.
func (c ofServer) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// both returns the time by both clocks, and whether they differ by more than the tolerance. Once they
// do, the tolerance is half: the whole seconds of responses must not make the result flap.
func (c *Clock) both() (local, server time.Time, apart bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local = c.Clock.Now()
	if c.server.IsZero() {
		return local, local, false
	}
	server = c.shows(local)
	tolerated := Tolerance
	if c.apart {
		tolerated /= 2
	}
	if apart = local.Sub(server).Abs() > tolerated; apart != c.apart {
		c.apart = apart
		klog.InfoS("This machine's clock and the API server's are compared for sessions and invoices",
			"differ", apart, "machine", local, "apiServer", server)
	}
	return local, server, apart
}

// shows converts a time of this machine's clock to the API server's. The time since the last response is
// measured by the monotonic clock, which no jump changes.
func (c *Clock) shows(local time.Time) time.Time { return c.server.Add(local.Sub(c.heard)) }

// answered records the API server's time from a response, unless an earlier response implies a later
// time: then this response was on its way for longer.
func (c *Clock) answered(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := c.Clock.Now()
	if c.server.IsZero() || at.After(c.shows(local)) || local.Sub(c.heard) > believed {
		c.server, c.heard = at, local
	}
}

// Wrap makes the clock read the API server's responses to a client; it is for a rest.Config.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return listener{next, c} }

type listener struct {
	next  http.RoundTripper
	clock *Clock
}

// RoundTrip implements http.RoundTripper.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		l.clock.answered(at)
	}
	return answer, nil
}
