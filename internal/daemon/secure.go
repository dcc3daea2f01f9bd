// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"k8s.io/client-go/kubernetes"
)

// SecureOptions configures ServeSecure.
type SecureOptions struct {
	// Address is host:port; unused with a Listener.
	Address string
	// Listener is served instead of Address, and closed at the end.
	Listener net.Listener
	// CertFile and KeyFile are read again when they change. If both are empty, a self-signed certificate is
	// created for the life of the process.
	CertFile, KeyFile string
	// TLS is used instead of the files; see TLSConfig.
	TLS *tls.Config
	// Client reviews the owner of a token and the owner's rights. It needs its own rate limit, because any
	// client's requests use it up.
	Client kubernetes.Interface
	// AlwaysAllow are the paths that need no token.
	AlwaysAllow []string
}

// ServeSecure serves handler over TLS until ctx ends. Clients need a bearer token of
// the cluster, and RBAC must allow its owner the verb (get, post …) on the path as a
// non-resource URL. Others get 401 or 403.
func ServeSecure(ctx context.Context, opts SecureOptions, handler http.Handler) error {
	guarded, err := newGuard(opts.Client, opts.AlwaysAllow, handler)
	if err != nil {
		return fmt.Errorf("serve securely: %w", err)
	}
	ln := opts.Listener
	if ln == nil {
		var lc net.ListenConfig
		if ln, err = lc.Listen(ctx, "tcp", opts.Address); err != nil {
			return fmt.Errorf("serve securely: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config := opts.TLS
	if config == nil {
		if config, err = TLSConfig(ctx, opts.CertFile, opts.KeyFile, ln.Addr()); err != nil {
			return errors.Join(fmt.Errorf("serve securely: %w", err), ln.Close())
		}
	}
	return Serve(ctx, NewServer(ctx, config, guarded), ln)
}
