// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// portWait limits the wait for a port whose last listener is being closed.
const portWait = 2 * time.Minute

// listener remembers the connections it accepted, so that all can be cut at once.
type listener struct {
	net.Listener

	mu       sync.Mutex
	open     map[*conn]struct{} // guarded by mu
	dead     bool               // guarded by mu
	lastWord bool               // guarded by mu: Close cuts all
}

// listen listens on a loopback port; on any when it is 0.
func listen(ctx context.Context, port int) (*listener, error) {
	var l net.Listener
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, portWait, true, func(context.Context) (bool, error) {
		l, last = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		return last == nil, nil
	})
	if err != nil {
		if last != nil {
			err = last
		}
		return nil, err // the caller names the listener
	}
	return &listener{Listener: l, open: map[*conn]struct{}{}}, nil
}

func (l *listener) port() int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // a net.Listener's own
	}
	out := &conn{Conn: c, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close() // accepted in the moment of death
		return out, nil
	}
	l.open[out] = struct{}{}
	return out, nil
}

// cutAll closes every connection, and those to come. The listener is left to the server, which panics
// when other code closes it.
func (l *listener) cutAll() {
	l.mu.Lock()
	l.dead = true
	open := l.open
	l.open = map[*conn]struct{}{}
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // its client sees the end either way
	}
}

// cutWhenClosed has the server's own Close cut every connection.
func (l *listener) cutWhenClosed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastWord = true
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	cut := l.lastWord
	l.mu.Unlock()
	if cut {
		l.cutAll()
	}
	return l.Listener.Close() // a net.Listener's own
}

type conn struct {
	net.Conn
	of *listener
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close() // a net.Conn's own
}
