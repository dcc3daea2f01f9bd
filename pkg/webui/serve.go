// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/nvtopo/nvtopo/pkg/daemon"
)

// Serve serves a handler until ctx ends, over TLS if there is a configuration, and closes the
// listener. Streams end with ctx.
func Serve(ctx context.Context, ln net.Listener, config *tls.Config, h http.Handler) error {
	srv := daemon.NewServer(ctx, config, h)
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	return daemon.Serve(ctx, srv, ln)
}
