// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// protocols are those that the server speaks, with what has the client speak them.
var protocols = map[string]func(*testing.T, *testEnv) *connections{"HTTP/1.1": overHTTP1, "HTTP/2.0": overHTTP2}

// eachProtocol runs a test over each protocol.
func eachProtocol(t *testing.T, name string, test func(*testing.T, func(*testing.T, *testEnv) *connections)) {
	t.Helper()
	for protocol, over := range protocols {
		t.Run(name+" over "+protocol, func(t *testing.T) { test(t, over) })
	}
}

// connections are those of the client to a server that end ends.
type connections struct {
	opened atomic.Int32
	end    context.CancelFunc
}

func (c *connections) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.opened.Add(1)
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// overHTTP1 has the client speak HTTP/1.1 to a server as the command has it.
func overHTTP1(t *testing.T, b *testEnv) *connections {
	t.Helper()
	c := &connections{end: b.serve(t, false, nil)}
	b.http.Client().Transport = &http.Transport{DialContext: c.dial}
	return c
}

// overHTTP2 has it speak HTTP/2 over TLS.
func overHTTP2(t *testing.T, b *testEnv) *connections {
	t.Helper()
	c := &connections{end: b.serve(t, true, nil)}
	b.http.Client().Transport = &http.Transport{DialContext: c.dial, TLSClientConfig: unverified(), ForceAttemptHTTP2: true}
	if got := b.protocol(t); got != "HTTP/2.0" {
		t.Fatalf("a client that would speak HTTP/2 speaks %s", got)
	}
	return c
}

func unverified() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// serve serves as the command does, until the test ends, and has the client ask there. A
// listener may be changed before.
func (e *testEnv) serve(t *testing.T, secure bool, change func(net.Listener) net.Listener) (end context.CancelFunc) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var config *tls.Config
	e.http.URL = "http://" + ln.Addr().String()
	if secure {
		e.http.URL = "https://" + ln.Addr().String()
		if config, err = daemon.TLSConfig(ctx, "", "", ln.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		ln = change(ln)
	}
	served := make(chan error, 1)
	go func() { served <- e.server.Serve(ctx, ln, config) }()
	t.Cleanup(func() {
		end()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return end
}

// protocol is the one of an answer.
func (e *testEnv) protocol(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.http.URL+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := e.http.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.Proto
}

// TestConnectionSharing: many pages share one connection of HTTP/2: none waits for the stream of
// another, as it would for the seventh page of a browser over HTTP/1.1. So do the limits of a
// caller.
func TestConnectionSharing(t *testing.T) {
	j := newJudge()
	j.may = func(string, *authorizationv1.ResourceAttributes) bool { return true }
	b := newTestEnv(t, sample(t), j.byToken)
	opened := overHTTP2(t, b)
	for i := range maxStreamsPerCaller {
		_, events := b.follow(t, bearer("good"))
		if e := next(t, events); e.name != "hello" {
			t.Fatalf("stream %d begins with %+v, want hello", i, e)
		}
		if answer, text := b.ask(t, asked{path: "/api/v1/cluster", header: bearer("good")}); answer.StatusCode != http.StatusOK {
			t.Fatalf("with %d streams, a document: %d %s", i+1, answer.StatusCode, text)
		}
		b.clock.Step(gap) // so that the limit of requests is another test's
	}
	if answer, text := b.ask(t, asked{path: "/api/v1/stream", header: bearer("good")}); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("stream %d of one caller: %d %s", maxStreamsPerCaller+1, answer.StatusCode, text)
	}
	_, events := b.follow(t, bearer("other"))
	if e := next(t, events); e.name != "hello" {
		t.Errorf("another caller's stream begins with %+v", e)
	}
	if n := opened.opened.Load(); n != 1 {
		t.Errorf("%d connections were opened, want 1", n)
	}
}

// TestHTTP2Switch: HTTP/2 can be left out by Go's own switch, where it was built with a Go whose
// HTTP/2 has faults.
func TestHTTP2Switch(t *testing.T) {
	t.Setenv("GODEBUG", "http2server=0")
	b := newTestEnv(t, sample(t), nil)
	b.serve(t, true, nil)
	b.http.Client().Transport = &http.Transport{TLSClientConfig: unverified(), ForceAttemptHTTP2: true}
	if got := b.protocol(t); got != "HTTP/1.1" {
		t.Errorf("it speaks %s", got)
	}
}

// TestSlowReview: a slow review ends no stream. A deadline is for what is written. One of HTTP/2
// counts while nothing is written, too.
func TestSlowReview(t *testing.T) {
	eachProtocol(t, "a stream", func(t *testing.T, over func(*testing.T, *testEnv) *connections) {
		t.Helper()
		j := newJudge()
		c := sample(t)
		b := newTestEnv(t, c, j.byToken)
		b.server.writeTimeout = 500 * time.Millisecond
		over(t, b)
		release := j.holdTokens()
		time.AfterFunc(2*b.server.writeTimeout, release) // the deadline is of the machine's clock
		_, events := b.follow(t, bearer("good"))
		if e := next(t, events); e.name != "hello" {
			t.Fatalf("first %+v, want hello", e)
		}
		waitForTickers(t, b.clock)
		release = j.holdTokens()
		before := j.tokens.Load()
		b.clock.Step(reviewEvery * 5 / 4)
		testkit.Eventually(t, time.Minute, "the token is reviewed", func(context.Context) (bool, string) { return j.tokens.Load() > before, "" })
		time.Sleep(2 * b.server.writeTimeout)
		release()
		n := c.Nodes[0].DeepCopy()
		n.ResourceVersion, n.Spec.Unschedulable = "1001", true
		if _, err := b.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, "the viewer is told of a change", func(context.Context) (bool, string) {
			b.clock.Step(gap)
			select {
			case e, more := <-events:
				if !more || e.name == "bye" {
					t.Fatalf("the stream ended: %+v", e)
				}
				return e.name == "nodes", e.name
			default:
				return false, "nothing is sent"
			}
		})
	})
}

// TestRefusalConnection: refusals leave the connection open. Over HTTP/2 other pages use it.
func TestRefusalConnection(t *testing.T) {
	b := newTestEnv(t, sample(t), nil)
	opened := overHTTP2(t, b)
	_, events := b.follow(t, nil)
	if e := next(t, events); e.name != "hello" {
		t.Fatalf("first %+v, want hello", e)
	}
	for name, q := range map[string]asked{
		"a POST": {method: "POST", path: "/api/v1/cluster"},
		"a body": {path: "/api/v1/cluster", body: "x"},
		"a path": {path: "/" + strings.Repeat("n", 2*maxPath)},
	} {
		if answer, _ := b.ask(t, q); answer.StatusCode < 400 {
			t.Errorf("%s: %d", name, answer.StatusCode)
		}
	}
	b.get(t, "/api/v1/cluster", new(any))
	if n := opened.opened.Load(); n != 1 {
		t.Errorf("%d connections were opened, want 1", n)
	}
}
