// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// healthPath is the path of kubelet's probes, which have no token.
const healthPath = "/healthz"

// Observable is a program that can report its state.
type Observable interface {
	Gatherer() prometheus.Gatherer
	Healthy() error
}

// Endpoint configures where metrics and health are served.
type Endpoint struct {
	// Address is host:port; empty serves nothing.
	Address string
	// CertFile and KeyFile are as in SecureOptions.
	CertFile, KeyFile string
	// Insecure serves plain HTTP to all clients, and only on a loopback address.
	Insecure bool
}

// AddFlags adds the endpoint's flags to the command line.
func (e *Endpoint) AddFlags(f *pflag.FlagSet, address string) {
	f.StringVar(&e.Address, "metrics-address", address, "address that serves /metrics and /healthz over HTTPS; empty for none")
	f.StringVar(&e.CertFile, "tls-cert-file", "", "certificate of the metrics server, read again when it changes; empty makes one at each start")
	f.StringVar(&e.KeyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	f.BoolVar(&e.Insecure, "metrics-insecure", false, "serve metrics over plain HTTP to everybody; only on a loopback address")
}

// ServeWhile serves /metrics and /healthz while run runs: /metrics to clients that the API server of
// cluster allows to get it, /healthz to all. It fails at once if it cannot use the address.
func ServeWhile(ctx context.Context, e *Endpoint, cluster *rest.Config, o Observable, run func(context.Context) error) error {
	if e.Address == "" {
		return run(ctx)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", e.Address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	serve, err := e.server(cluster, ln, handler(o))
	if err != nil {
		return fmt.Errorf("serve metrics: %w", errors.Join(err, ln.Close()))
	}
	// Served until run returns, which may be some time after ctx ends.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel() // without metrics the program must not go on
		if err := serve(serving); err != nil {
			served <- fmt.Errorf("serve metrics: %w", err)
		}
		close(served)
	}()
	klog.FromContext(ctx).Info("Serving metrics", "address", ln.Addr().String(), "insecure", e.Insecure)
	err = run(ctx)
	stop()
	return errors.Join(err, <-served)
}

// server returns a function that serves h until its context ends.
func (e *Endpoint) server(cluster *rest.Config, ln net.Listener, h http.Handler) (func(context.Context) error, error) {
	if !e.Insecure {
		client, err := reviewer(cluster)
		if err != nil {
			return nil, err
		}
		opts := SecureOptions{Listener: ln, CertFile: e.CertFile, KeyFile: e.KeyFile, Client: client, AlwaysAllow: []string{healthPath}}
		return func(ctx context.Context) error { return ServeSecure(ctx, opts, h) }, nil
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, fmt.Errorf("--metrics-insecure is for a loopback address, not %s", e.Address)
	}
	if e.CertFile != "" || e.KeyFile != "" {
		return nil, errors.New("--metrics-insecure cannot be used with a certificate")
	}
	return func(ctx context.Context) error { return Serve(ctx, NewServer(ctx, nil, h), ln) }, nil
}

// reviewer returns a client for reviews of tokens and rights, with a separate rate limit: a stranger's
// requests must not stop the program from renewing its Lease.
func reviewer(cluster *rest.Config) (kubernetes.Interface, error) {
	cfg := rest.CopyConfig(cluster)
	cfg.RateLimiter, cfg.QPS, cfg.Burst = nil, 5, 10
	cfg.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

func handler(o Observable) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{o.Gatherer(), process}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client may be gone
	})
	return mux
}
