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
	// Tolerance is how far this machine's clock may be from the API server's: answers have whole seconds,
	// and take their time.
	Tolerance = 10 * time.Second
	// believed is for how long an answer counts that no later one confirms: the API server's own clock
	// may have been ahead.
	believed = time.Minute
)

// Clock is this machine's clock, or the API server's where that shows an earlier time. Its methods may be
// used concurrently.
type Clock struct {
	clock.Clock // this machine's

	mu     sync.Mutex
	server time.Time // guarded by mu; what the API server's clock showed at heard; zero before the first answer
	heard  time.Time // guarded by mu; by this machine's clock, and its monotonic one
	apart  bool      // guarded by mu; the clocks differ by more than is tolerated
}

// New makes a clock of this machine's.
func New(local clock.Clock) *Clock { return &Clock{Clock: local} }

// Now is the time by this machine's clock, or by the API server's if that is more than Tolerance behind.
func (c *Clock) Now() time.Time {
	local, server, apart := c.both()
	if apart && server.Before(local) {
		return server
	}
	return local
}

// Since is how long ago a time was, by Now.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// OfServer is the clock that goes by the API server's where the two differ by more than Tolerance, whichever
// is ahead: for times that are compared with those that the API server writes.
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

// Since is how long ago a time was, by Now.
func (c ofServer) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// both is the time by both clocks, and whether these differ by more than is tolerated. Once they do, half of
// that is: the whole seconds of answers must not have it change again and again.
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

// shows is what the API server's clock shows when this machine's shows local. What has passed since the
// last answer is by the monotonic clock, which no jump changes.
func (c *Clock) shows(local time.Time) time.Time { return c.server.Add(local.Sub(c.heard)) }

// answered takes the API server's time from an answer, unless one before says that it is later: the answer
// was on its way for longer then.
func (c *Clock) answered(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := c.Clock.Now()
	if c.server.IsZero() || at.After(c.shows(local)) || local.Sub(c.heard) > believed {
		c.server, c.heard = at, local
	}
}

// Wrap has the clock hear the answers of the API server that a client gets; it is for a rest.Config.
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
