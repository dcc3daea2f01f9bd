// SPDX-License-Identifier: Apache-2.0

package memoryapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Serve serves a Store until ctx ends, and returns the configuration for its clients: without an address,
// and without a limit to their requests.
func Serve(ctx context.Context, store *Store) *rest.Config {
	ln := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	go serve(ctx, ln, store)
	return &rest.Config{
		Host: "http://memory", Dial: ln.dial, QPS: -1,
		Proxy:         func(*http.Request) (*url.URL, error) { return nil, nil }, //nolint:nilnil // no proxy
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// listener accepts the connections that dial makes.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// memory is the address of a listener.
type memory struct{}

func (memory) Network() string { return "memory" }
func (memory) String() string  { return "memory" }

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the other end of the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; connections stay.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address "memory".
func (l *listener) Addr() net.Addr { return memory{} }
