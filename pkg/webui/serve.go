// SPDX-License-Identifier: Apache-2.0

package webui

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

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// shutdownTimeout bounds how long a request in progress can delay the end.
	shutdownTimeout = 5 * time.Second
	// headerTimeout and idleTimeout close connections on which nothing happens.
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// maxHeader bounds a request's header: a token and a path.
	maxHeader = 32 << 10
)

// Serve serves a handler until ctx ends, over TLS if there is a configuration, and closes the
// listener. Streams end with ctx.
func Serve(ctx context.Context, ln net.Listener, config *tls.Config, h http.Handler) error {
	// HTTP/1.1 only: nothing here needs HTTP/2, and one page has one stream.
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	srv := &http.Server{
		Handler: h, TLSConfig: config, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, Protocols: protocols,
		ErrorLog: log.New(errorLog{klog.FromContext(ctx).V(4)}, "", 0), // caused by strangers
	}
	failed := make(chan error, 1)
	go func() {
		if config == nil {
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

// errorLog passes what net/http prints on to the contextual logger.
type errorLog struct{ logger klog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.logger.Info(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// TLS reads a certificate; without files one is made, signed by itself, for the life of the
// process.
func TLS(certFile, keyFile string, addr net.Addr) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if certFile == "" && keyFile == "" {
		host, _, err := net.SplitHostPort(addr.String())
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, []string{"localhost"})
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
		return config, nil
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	// Read at every handshake, so that a new certificate counts at once.
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &pair, err
	}
	return config, nil
}
