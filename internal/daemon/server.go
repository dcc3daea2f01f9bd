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
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// shutdownTimeout limits how long a request in progress can delay the end.
	shutdownTimeout = 5 * time.Second
	// headerTimeout and idleTimeout close inactive connections.
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// maxHeader limits a request's header (a token and a path), because a client without rights can send
	// one.
	maxHeader = 32 << 10
)

// NewServer returns a server with the limits of all nvtopo servers; without a configuration it has no
// TLS. It supports HTTP/1.1 only: clients without a token have repeatedly crashed or overloaded HTTP/2
// servers (CVE-2023-44487, CVE-2026-97032). A caller that needs HTTP/2 sets Protocols and HTTP2.
func NewServer(ctx context.Context, config *tls.Config, handler http.Handler) *http.Server {
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

// Serve serves until ctx ends, and closes the listener.
func Serve(ctx context.Context, srv *http.Server, ln net.Listener) error {
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

// TLSConfig returns a configuration that follows changes of the certificate files until ctx ends. Without
// files a self-signed certificate is created for the life of the process. The server chooses the
// protocols.
func TLSConfig(ctx context.Context, certFile, keyFile string, addr net.Addr) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
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
	// Not GetConfigForClient: that would have its own list of protocols.
	out.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		now, err := certificates.GetConfigForClient(hello)
		if err != nil {
			return nil, err
		}
		return &now.Certificates[0], nil
	}
	return out, nil
}

// CertificateOf returns the certificate, in DER, that a configuration of TLSConfig serves with now.
func CertificateOf(config *tls.Config) ([]byte, error) {
	// Without a name it would need the address of a connection, which does not exist here.
	c, err := config.GetCertificate(&tls.ClientHelloInfo{ServerName: "localhost"})
	if err != nil {
		return nil, fmt.Errorf("the certificate in use: %w", err)
	}
	if len(c.Certificate) == 0 {
		return nil, errors.New("there is no certificate in use")
	}
	return c.Certificate[0], nil
}

// errorLog writes net/http's messages to the contextual logger.
type errorLog struct{ logger klog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.logger.Info(string(bytes.TrimSpace(p)))
	return len(p), nil
}
