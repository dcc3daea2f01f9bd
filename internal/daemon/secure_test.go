// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// reviewServer answers as an API server whose tokens begin with their owners' names
// and which lets reader get /metrics. The real one is in test/integration.
type reviewServer struct {
	*httptest.Server

	tokens, accesses atomic.Int32
	hold             chan struct{} // closed when reviews may be answered
}

func newReviewServer(t *testing.T) *reviewServer {
	t.Helper()
	s := &reviewServer{hold: make(chan struct{})}
	close(s.hold)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		s.tokens.Add(1)
		<-s.hold
		var review authenticationv1.TokenReview
		answer(t, w, r, &review, func() {
			user, _, _ := strings.Cut(review.Spec.Token, ".")
			review.Status.Authenticated = !strings.HasPrefix(user, "bad")
			review.Status.User.Username = user
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		s.accesses.Add(1)
		var review authorizationv1.SubjectAccessReview
		answer(t, w, r, &review, func() {
			a := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "reader" && a.Verb == "get" && a.Path == "/metrics"
		})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func answer(t *testing.T, w http.ResponseWriter, r *http.Request, review any, decide func()) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		t.Error(err)
	}
	decide()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		t.Error(err)
	}
}

func (s *reviewServer) config() *rest.Config { return &rest.Config{Host: s.URL} }

func (s *reviewServer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func request(t *testing.T, method, url, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	resp := request(t, http.MethodGet, url, token) //nolint:bodyclose // request closes it
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// secured serves a handler that tells what it was asked until the test ends.
func secured(t *testing.T, opts SecureOptions) (base string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.Listener = ln
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- ServeSecure(ctx, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s with %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
		}))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return "https://" + ln.Addr().String()
}

// TestAuthorization: only clients with the right are served.
func TestAuthorization(t *testing.T) {
	cluster := newReviewServer(t)
	base := secured(t, SecureOptions{Client: cluster.client(t), AlwaysAllow: []string{"/healthz"}})
	tests := map[string]struct {
		method, path, token string
		wantCode            int
		wantBody            string
	}{
		"who may read reads, and his token goes no further": {"GET", "/metrics", "reader", 200, `GET /metrics with ""`},
		"health is everybody's":                             {"GET", "/healthz", "", 200, "GET /healthz"},
		"a health check's bad token is not looked at":       {"GET", "/healthz", "bad", 200, "GET /healthz"},
		"no token":                                 {"GET", "/metrics", "", 401, "Unauthorized"},
		"a token that nobody issued":               {"GET", "/metrics", "bad", 401, "Unauthorized"},
		"somebody without the right":               {"GET", "/metrics", "stranger", 403, "stranger may not get /metrics"},
		"the right to read is not one to write":    {"POST", "/metrics", "reader", 403, "reader may not post /metrics"},
		"another path":                             {"GET", "/debug", "reader", 403, "reader may not get /debug"},
		"a path that only begins with an open one": {"GET", "/healthz/x", "", 401, "Unauthorized"},
		"a way around":                             {"GET", "/healthz/../metrics", "", 401, "Unauthorized"},
		"a way around in disguise":                 {"GET", "/healthz%2f..%2fmetrics", "", 401, "Unauthorized"},
		"a path that is too long to ask about":     {"GET", "/" + strings.Repeat("x", 300), "reader", 414, "too long"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp := request(t, tc.method, base+tc.path, tc.token) //nolint:bodyclose // request closes it
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.wantCode || !strings.Contains(string(body), tc.wantBody) {
				t.Errorf("%d %q, want %d and %q", resp.StatusCode, body, tc.wantCode, tc.wantBody)
			}
			if resp.Proto != "HTTP/1.1" { // this client would rather have HTTP/2
				t.Errorf("served over %s", resp.Proto)
			}
			if got := resp.Header.Get("WWW-Authenticate"); (got == "Bearer") != (tc.wantCode == 401) {
				t.Errorf("WWW-Authenticate %q with status %d", got, resp.StatusCode)
			}
		})
	}
}

// TestReviewCache: answers are kept for a moment.
func TestReviewCache(t *testing.T) {
	cluster := newReviewServer(t)
	base := secured(t, SecureOptions{Client: cluster.client(t)})
	for range 5 {
		if code, body := get(t, base+"/metrics", "reader"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	}
	if tokens, accesses := cluster.tokens.Load(), cluster.accesses.Load(); tokens != 1 || accesses != 1 {
		t.Errorf("the API server was asked for %d tokens and %d rights, want 1 and 1", tokens, accesses)
	}
}

// TestFloodedHealth: a flood leaves health alone. Strangers can make the server wait for an API
// server that is slow, but not hold more than so many requests, nor the probes.
func TestFloodedHealth(t *testing.T) {
	cluster := newReviewServer(t)
	cluster.hold = make(chan struct{})
	base := secured(t, SecureOptions{Client: cluster.client(t), AlwaysAllow: []string{"/healthz"}})
	var wg sync.WaitGroup
	var refused, turnedAway atomic.Int32
	for i := range 3 * maxReviews {
		wg.Go(func() {
			switch code, body := get(t, base+"/metrics", fmt.Sprint("bad", i)); code {
			case http.StatusUnauthorized:
				refused.Add(1)
			case http.StatusTooManyRequests:
				turnedAway.Add(1)
			default:
				t.Errorf("%d %s", code, body)
			}
		})
	}
	testkit.Soon(t, "those are turned away whose turn it is not", func() bool { return turnedAway.Load() >= 2*maxReviews })
	if code, body := get(t, base+"/healthz", ""); code != 200 {
		t.Errorf("/healthz: %d %s", code, body)
	}
	close(cluster.hold)
	wg.Wait()
	if refused.Load() != maxReviews || turnedAway.Load() != 2*maxReviews {
		t.Errorf("%d refused and %d turned away, want %d and %d", refused.Load(), turnedAway.Load(), maxReviews, 2*maxReviews)
	}
}

// TestUnreachableAPIServer: an API server that is away lets nobody in.
func TestUnreachableAPIServer(t *testing.T) {
	cluster := newReviewServer(t)
	base := secured(t, SecureOptions{Client: cluster.client(t), AlwaysAllow: []string{"/healthz"}})
	cluster.Close()
	if code, body := get(t, base+"/metrics", "reader"); code != 401 {
		t.Errorf("/metrics: %d %s, want 401", code, body)
	}
	if code, _ := get(t, base+"/healthz", ""); code != 200 {
		t.Errorf("/healthz: %d, want 200", code)
	}
}

// TestScraperTokenLogging: the scraper's token is not printed. client-go prints the bodies of
// requests from -v=8, and a TokenReview is nothing but the token.
func TestScraperTokenLogging(t *testing.T) {
	cluster := newReviewServer(t)
	var log syncBuffer
	printEverything(t, &log)
	base := secured(t, SecureOptions{Client: cluster.client(t)})
	const secret = "c2VjcmV0LXNlY3JldA"
	for token, want := range map[string]int{"reader." + secret: 200, "stranger." + secret: 403, "bad." + secret: 401} {
		if code, body := get(t, base+"/metrics", token); code != want {
			t.Errorf("%d %s, want %d", code, body, want)
		}
	}
	// It is the SubjectAccessReview's body that shows that bodies are printed.
	if got := log.String(); !strings.Contains(got, "Refused a request") || !strings.Contains(got, `"path":"/metrics"`) {
		t.Errorf("the log is not at its most talkative:\n%s", got)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("the log has the token: %s", line)
		}
	}
}

// printEverything directs klog, which is one per process, to w for the time of the test.
func printEverything(t *testing.T, w io.Writer) {
	t.Helper()
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"v": "10", "logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(w)
}

// TestOldTLS: old TLS is refused.
func TestOldTLS(t *testing.T) {
	base := secured(t, SecureOptions{Client: newReviewServer(t).client(t)})
	addr := strings.TrimPrefix(base, "https://")
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v, want it to be spoken: %t", tls.VersionName(version), err, want)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// TestCertificateReload: the certificate follows its files. It replaces a certificate as a Secret
// volume does, by a rename.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(host string) {
		pem, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{keyFile: key, certFile: pem} {
			if err := os.WriteFile(path+".new", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("first.example")
	base := secured(t, SecureOptions{Client: newReviewServer(t).client(t), CertFile: certFile, KeyFile: keyFile})
	served := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, " ")
	}
	if got := served(); got != "first.example" {
		t.Errorf("serves the certificate of %q", got)
	}
	write("second.example")
	testkit.Eventually(t, 2*time.Minute, "the new certificate is served", func(context.Context) (bool, string) {
		got := served()
		return got == "second.example", got
	})
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
