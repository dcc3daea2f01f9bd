// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// busy makes changes, and has a viewer told of them, until it is enough.
func (e *testEnv) busy(t *testing.T, c *viewtest.Cluster, mine *page, events <-chan received, enough func(round int) bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 9))
	for round := 0; !enough(round); round++ {
		for i := range 8 {
			e.change(t, r, c, round*10+i)
		}
		testkit.Eventually(t, time.Minute, "the quick one is told", func(context.Context) (bool, string) {
			e.clock.Step(gap)
			fresh := e.fetched(t)
			mine.follow(t, e, events, fresh.version)
			return cmp.Diff(fresh.workloads, mine.workloads) == "", fmt.Sprintf("client %d, fresh %d", mine.version, fresh.version)
		})
	}
}

// TestSlowReader: a slow reader gets the sum of what it missed, and holds nobody up: nothing is
// kept for it.
func TestSlowReader(t *testing.T) {
	c := sample(t)
	b := newTestEnv(t, c, nil)
	slow, err := net.Dial("tcp", strings.TrimPrefix(b.http.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(slow, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
	testkit.Eventually(t, time.Minute, "the slow one looks", func(context.Context) (bool, string) { return b.server.looking.Load() == 1, "" })
	mine := b.fetched(t)
	_, events := b.follow(t, map[string]string{"Last-Event-ID": mine.id})
	b.busy(t, c, mine, events, func(round int) bool { return round == 30 })
	// Now it reads: in the end it has the same version.
	lines := bufio.NewScanner(slow)
	lines.Buffer(nil, 2*maxEvent)
	for lines.Scan() {
		if lines.Text() == "id: "+mine.id {
			return
		}
	}
	t.Fatalf("the slow reader's stream ended before version %s: %v", mine.id, lines.Err())
}

// buffer is the size of the buffers of sockets that are to be full soon, in bytes.
const buffer = 4 << 10

// smallSockets sends by small buffers.
type smallSockets struct{ net.Listener }

func (l smallSockets) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		err = tcp.SetWriteBuffer(buffer)
	}
	return conn, err
}

// stopping is a connection that stops to read.
type stopping struct {
	net.Conn

	stopped <-chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func (s *stopping) Read(p []byte) (int, error) {
	select {
	case <-s.stopped:
		<-s.closed
		return 0, net.ErrClosed
	default:
		return s.Conn.Read(p)
	}
}

func (s *stopping) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// slowClient reads from a small socket, and from none after stopped is closed.
func slowClient(stopped <-chan struct{}, change func(*http.Transport)) *http.Client {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer) }), err)
	}}
	t := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &stopping{Conn: conn, stopped: stopped, closed: make(chan struct{})}, nil
	}}
	change(t)
	return &http.Client{Transport: t}
}

// TestStalledReader: a client that does not read is dropped when its buffers are full and the time
// for writing has passed. Meanwhile others are told what changes.
func TestStalledReader(t *testing.T) {
	for name, tc := range map[string]struct {
		secure bool
		stops  bool // to read the socket; or else only the stream's body
		change func(*http.Transport)
	}{
		"HTTP/1.1, its socket is full": {false, true, func(*http.Transport) {}},
		"HTTP/2, its socket is full":   {true, true, func(tr *http.Transport) { tr.TLSClientConfig, tr.ForceAttemptHTTP2 = unverified(), true }},
		"HTTP/2, its window is full": {true, false, func(tr *http.Transport) {
			tr.TLSClientConfig, tr.ForceAttemptHTTP2, tr.HTTP2 = unverified(), true, &http.HTTP2Config{MaxReceiveBufferPerStream: 4 * buffer}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sample(t)
			b := newTestEnv(t, c, nil)
			b.server.writeTimeout = time.Second
			small := *b
			small.http = &httptest.Server{}
			small.serve(t, tc.secure, func(ln net.Listener) net.Listener { return smallSockets{ln} })
			stopped := make(chan struct{})
			small.begin(t, slowClient(stopped, tc.change))
			if tc.stops {
				close(stopped)
			}
			mine := b.fetched(t)
			_, events := b.follow(t, map[string]string{"Last-Event-ID": mine.id})
			over := time.After(3 * time.Minute)
			b.busy(t, c, mine, events, func(int) bool {
				select {
				case <-over:
					t.Fatalf("%d look, want the one that reads", b.server.looking.Load())
				default:
				}
				return b.server.looking.Load() == 1
			})
		})
	}
}

// begin opens a stream, and reads how it begins.
func (e *testEnv) begin(t *testing.T, client *http.Client) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.http.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close(); client.CloseIdleConnections() })
	if _, err := answer.Body.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
}

// deadlined is an answer that remembers the deadline under which it was written.
type deadlined struct {
	*httptest.ResponseRecorder
	now, at time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error {
	d.now = t
	return nil
}

func (d *deadlined) Write(p []byte) (int, error) {
	d.at = d.now
	return d.ResponseRecorder.Write(p)
}

// TestRefusedStreamDeadline: a refused stream has a deadline: who is let in by nobody must not hold
// a connection by not reading.
func TestRefusedStreamDeadline(t *testing.T) {
	b := newTestEnv(t, sample(t), newJudge().byToken)
	answer := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	b.server.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/stream", http.NoBody))
	if answer.Code != http.StatusUnauthorized {
		t.Fatalf("without a token: %d %s", answer.Code, answer.Body)
	}
	if answer.at.IsZero() {
		t.Error("the refusal was written without a deadline")
	}
}
