// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// carryOut limits a request that is carried out without its client. How long the API server may still
	// work on it is the server's setting.
	carryOut = 2 * time.Minute
	// readHeader limits a client that sends half a request.
	readHeader = 10 * time.Second
)

// Options configures the proxy. All are required except Clock.
type Options struct {
	// Backend is the API server's address and CA; its credentials are not used:
	// each request carries its client's.
	Backend *rest.Config
	// CertFile and KeyFile are a server certificate for 127.0.0.1 that clients of
	// Backend's CA trust.
	CertFile, KeyFile string
	Seed              uint64
	Clock             clock.Clock
}

// Proxy is a running proxy. Its methods may be used concurrently.
type Proxy struct {
	seed    uint64
	clock   clock.Clock
	backend *url.URL
	via     http.RoundTripper
	reverse *httputil.ReverseProxy
	server  *http.Server
	url     string
	pending sync.WaitGroup // requests carried out without their clients, and the server itself
	end     context.CancelFunc
	ctx     context.Context // the proxy's life

	mu      sync.Mutex
	rules   []Rule               // guarded by mu
	seen    map[string]uint64    // kind of request -> how many came; guarded by mu
	counts  map[Kind]int         // guarded by mu
	watches map[*stream]struct{} // running; guarded by mu
	lag     time.Duration        // of watches; guarded by mu
	lagging []string             // resources whose watches are late; empty: all; guarded by mu
	total   int                  // requests; guarded by mu
}

// Start listens on a loopback port and serves until Close.
func Start(ctx context.Context, opts Options) (*Proxy, error) {
	backend, err := url.Parse(opts.Backend.Host)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	via, err := rest.TransportFor(&rest.Config{
		Host: opts.Backend.Host, TLSClientConfig: rest.TLSClientConfig{CAData: opts.Backend.CAData, CAFile: opts.Backend.CAFile},
	})
	if err != nil {
		return nil, fmt.Errorf("make the proxy's transport: %w", err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{
		seed: opts.Seed, clock: opts.Clock, backend: backend, via: via, url: "https://" + listener.Addr().String(),
		seen: map[string]uint64{}, counts: map[Kind]int{}, watches: map[*stream]struct{}{},
	}
	if p.clock == nil {
		p.clock = clock.RealClock{}
	}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	quiet := log.New(io.Discard, "", 0) // cut connections are its purpose
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(backend) },
		Transport:      via,
		FlushInterval:  -1,
		ErrorLog:       quiet,
		ModifyResponse: p.wrapWatch,
		// The API server is away, so this connection is cut too.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{Handler: p, ErrorLog: quiet, ReadHeaderTimeout: readHeader}
	p.pending.Go(func() { _ = p.server.ServeTLS(listener, opts.CertFile, opts.KeyFile) }) // it ends with Close
	return p, nil
}

// URL returns the URL of the API server through the proxy.
func (p *Proxy) URL() string { return p.url }

// Set replaces the rules.
func (p *Proxy) Set(rules []Rule) {
	p.mu.Lock()
	p.rules = rules
	p.mu.Unlock()
}

// Counts returns how often each fault happened so far.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Requests returns how many requests came so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Close ends all connections and waits for requests still being carried out.
func (p *Proxy) Close() error {
	p.end()
	err := p.server.Close()
	p.pending.Wait()
	if err != nil {
		return fmt.Errorf("close the proxy: %w", err)
	}
	return nil
}

func (p *Proxy) count(k Kind) {
	p.mu.Lock()
	p.counts[k]++
	p.mu.Unlock()
}

// judge takes a request's number and decides on it.
func (p *Proxy) judge(q *request) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	n := p.seen[q.key()]
	p.seen[q.key()] = n + 1
	return decide(p.seed, p.rules, q, n)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := classify(r)
	v := p.judge(q)
	if v.slow > 0 {
		p.count(Slow)
		if !p.sleep(r.Context(), v.slow) {
			panic(http.ErrAbortHandler)
		}
	}
	if v.kind == "" {
		p.reverse.ServeHTTP(w, r)
		return
	}
	p.inject(w, r, q, v) //nolint:contextcheck // what is late outlives its request
}

func (p *Proxy) inject(w http.ResponseWriter, r *http.Request, q *request, v verdict) {
	switch v.kind {
	case Lost, TimedOut, Late, ConflictAfter, InternalAfter, UnavailableAfter:
		p.without(w, r, q, v)
	default:
		p.count(v.kind)
		refuse(w, q, v)
	}
}

// refuse sends the response of a fault, or cuts the connection if it has none.
func refuse(w http.ResponseWriter, q *request, v verdict) {
	status := refusal(q, v)
	if status == nil {
		panic(http.ErrAbortHandler)
	}
	answer(w, status)
}

// refusal returns the response of a fault, or nil if it has none.
func refusal(q *request, v verdict) *apierrors.StatusError {
	what, because := schema.GroupResource{Resource: q.resource}, errors.New("injected")
	// With Retry-After client-go tries again by itself, without it the caller hears of it.
	var retry int32
	if v.draw < 0.5 {
		retry = 1
	}
	switch v.kind {
	case Conflict:
		return apierrors.NewConflict(what, "", because)
	case ConflictAfter: // as a Binding's time-out in etcd is answered
		return apierrors.NewConflict(what, "", errors.New("injected: etcdserver: request timed out"))
	case TooMany:
		return apierrors.NewTooManyRequests("injected", int(retry))
	case Internal:
		return apierrors.NewInternalError(because)
	case InternalAfter:
		return later(apierrors.NewInternalError(because), retry)
	case Unavailable:
		return apierrors.NewServiceUnavailable("injected")
	case UnavailableAfter:
		return later(apierrors.NewServiceUnavailable("injected"), retry)
	case TimedOut:
		return apierrors.NewTimeoutError("injected: "+q.key(), 0)
	case Expired:
		return apierrors.NewResourceExpired("injected")
	default:
		return nil
	}
}

// later sets the response's Retry-After to so many seconds, if any.
func later(e *apierrors.StatusError, seconds int32) *apierrors.StatusError {
	if e.ErrStatus.Details == nil {
		e.ErrStatus.Details = &metav1.StatusDetails{}
	}
	e.ErrStatus.Details.RetryAfterSeconds = seconds
	return e
}

// without carries a request out while its client does not receive the result. Only the server's commits
// are counted.
func (p *Proxy) without(w http.ResponseWriter, r *http.Request, q *request, v verdict) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out := r.Clone(p.ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = p.backend.Scheme, p.backend.Host, p.backend.Host, ""
	out.Body = io.NopCloser(bytes.NewReader(body))
	if v.kind == Late {
		p.pending.Go(func() {
			if p.sleep(p.ctx, v.after) {
				p.carryOut(out, v.kind)
			}
		})
		panic(http.ErrAbortHandler)
	}
	p.carryOut(out, v.kind)
	refuse(w, q, v)
}

func (p *Proxy) carryOut(out *http.Request, kind Kind) {
	ctx, cancel := context.WithTimeout(p.ctx, carryOut)
	defer cancel()
	resp, err := p.via.RoundTrip(out.WithContext(ctx))
	if err != nil {
		return // the API server is away
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode < http.StatusBadRequest {
		p.count(kind)
	}
}

// sleep waits for d and returns true, or false if the context ended first.
func (p *Proxy) sleep(ctx context.Context, d time.Duration) bool {
	t := p.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// answer sends err as the API server would.
func answer(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, merr := json.Marshal(&status)
	if merr != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // the client may be gone
}
