// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

// maxPerConnection bounds the requests in work on one connection of HTTP/2: the most streams of one
// caller, and as many documents.
const maxPerConnection = 2 * maxStreamsPerCaller

// Serve serves until ctx ends, over TLS if there is a configuration, and closes the listener. Streams end
// with ctx.
func (s *Server) Serve(ctx context.Context, ln net.Listener, config *tls.Config) error {
	srv := daemon.NewServer(ctx, config, s.Handler())
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	// HTTP/2 with TLS: a browser has six connections of HTTP/1.1 to a server, and each page keeps one for
	// its stream. Nil leaves it to net/http, so that GODEBUG=http2server=0 is respected.
	srv.Protocols = nil
	// The write deadline of an HTTP/2 stream covers data that its window holds back, but not data that the
	// socket does not take.
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxPerConnection, WriteByteTimeout: s.writeTimeout}
	if config != nil {
		ln = strictListener{ln}
	}
	return daemon.Serve(ctx, srv, ln)
}

// strictListener closes connections on which a write missed its deadline. The server of HTTP/2 ignores
// that error of a flush, and would keep a viewer to whom little is sent.
type strictListener struct{ net.Listener }

func (l strictListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return strictConn{conn}, nil
}

type strictConn struct{ net.Conn }

func (c strictConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close() // the error of the write is returned
	}
	return n, err
}
