// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// shutdownTimeout bounds how long a request in progress can delay the end.
	shutdownTimeout = 5 * time.Second
	// headerTimeout and idleTimeout close connections on which nothing happens.
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// maxHeader bounds a request's header (a token and a path), because a client
	// without rights can send one.
	maxHeader = 32 << 10
)

// SecureOptions say where a program shows its state, and to whom.
type SecureOptions struct {
	// Address is host:port; unused if there is a Listener.
	Address string
	// Listener is served instead of Address, and closed at the end.
	Listener net.Listener
	// CertFile and KeyFile are read again when they change. If both are empty, a
	// self-signed certificate is made for the life of the process.
	CertFile, KeyFile string
	// Client asks the API server who owns a token and what the owner may do. Give it
	// its own rate limit, because anybody's requests use it up.
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
	config, err := tlsConfig(ctx, opts.CertFile, opts.KeyFile, ln.Addr())
	if err != nil {
		return errors.Join(fmt.Errorf("serve securely: %w", err), ln.Close())
	}
	return serveOn(ctx, newServer(ctx, config, guarded), ln)
}

// newServer speaks HTTP/1.1 only. Nothing here needs HTTP/2, and clients without a
// token have repeatedly crashed or overloaded HTTP/2 servers (CVE-2023-44487,
// CVE-2026-97032).
func newServer(ctx context.Context, config *tls.Config, handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		// Only for its logger: a request in progress may finish after ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		Protocols:   protocols,
		// Caused by strangers, mostly failed handshakes.
		ErrorLog: log.New(errorLog{klog.FromContext(ctx).V(4)}, "", 0),
	}
}

// serveOn serves until ctx ends.
func serveOn(ctx context.Context, srv *http.Server, ln net.Listener) error {
	failed := make(chan error, 1)
	go func() {
		if srv.TLSConfig == nil {
			failed <- srv.Serve(ln)
		} else {
			failed <- srv.ServeTLS(ln, "", "")
		}
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	err := srv.Shutdown(end)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	<-failed
	return err
}

// tlsConfig returns a configuration that follows changes of the certificate files.
func tlsConfig(ctx context.Context, certFile, keyFile string, addr net.Addr) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	var provider dynamiccertificates.CertKeyContentProvider
	if certFile != "" || keyFile != "" {
		files, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		go files.Run(ctx, 1)
		provider = files
	} else {
		host, _, err := net.SplitHostPort(addr.String())
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		pem, key, err := cert.GenerateSelfSignedCertKey(host, nil, []string{"localhost"})
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		if provider, err = dynamiccertificates.NewStaticCertKeyContent("self-signed", pem, key); err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
	}
	certificates := dynamiccertificates.NewDynamicServingCertificateController(config, nil, provider, nil, nil)
	provider.AddListener(certificates)
	if err := certificates.RunOnce(); err != nil {
		return nil, fmt.Errorf("use the certificate: %w", err)
	}
	go certificates.Run(1, ctx.Done())
	out := config.Clone()
	out.GetConfigForClient = certificates.GetConfigForClient
	return out, nil
}

// errorLog passes what net/http prints on to the contextual logger.
type errorLog struct{ logger klog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.logger.Info(string(bytes.TrimSpace(p)))
	return len(p), nil
}
