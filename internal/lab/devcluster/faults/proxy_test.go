// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// stand is a server, a proxy before it and a client of the proxy.
type stand struct {
	*Proxy
	client *http.Client
	hits   atomic.Int32            // requests that reached the server
	feed   chan string             // lines that a watch delivers
	clock  *clocktesting.FakeClock // nil: the real one
}

func newStand(t *testing.T, seed uint64) *stand {
	t.Helper()
	return newStandAt(t, seed, nil)
}

// newStandAt is newStand with a clock.
func newStandAt(t *testing.T, seed uint64, clk *clocktesting.FakeClock) *stand {
	t.Helper()
	s := &stand{feed: make(chan string), clock: clk}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		if r.URL.Query().Get("watch") == "" {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
			return
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-s.feed:
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	opts := Options{
		Backend:  &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: cert}},
		CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key"), Seed: seed,
	}
	if clk != nil {
		opts.Clock = clk
	}
	for path, data := range map[string][]byte{opts.CertFile: cert, opts.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.Proxy, err = Start(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	s.client = server.Client()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const (
	pods   = "/api/v1/namespaces/ns/pods"
	leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
)

// ask sends a request and returns the answer's code, 0 when there was none, and body.
func (s *stand) ask(t *testing.T, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		rule     Rule
		method   string
		path     string
		wantCode int // 0: no answer
		wantHits int32
		want     int // times it is counted
	}{
		"a conflict is answered without asking the server":   {Rule{Kind: Conflict}, "PUT", pods + "/a", 409, 0, 1},
		"too many requests likewise":                         {Rule{Kind: TooMany}, "POST", pods, 429, 0, 1},
		"an internal error likewise":                         {Rule{Kind: Internal}, "PATCH", pods + "/a", 500, 0, 1},
		"an unavailable server likewise":                     {Rule{Kind: Unavailable}, "DELETE", pods + "/a", 503, 0, 1},
		"a refused request does not reach the server":        {Rule{Kind: Refused}, "POST", pods, 0, 0, 1},
		"a lost answer is of a request that was carried out": {Rule{Kind: Lost}, "POST", pods + "/a/binding", 0, 1, 1},
		"so is one that timed out":                           {Rule{Kind: TimedOut}, "POST", pods + "/a/binding", 504, 1, 1},
		"a conflict may be answered after the server did it": {Rule{Kind: ConflictAfter}, "POST", pods + "/a/binding", 409, 1, 1},
		"so may an internal error":                           {Rule{Kind: InternalAfter}, "PATCH", pods + "/a", 500, 1, 1},
		"so may a server be unavailable":                     {Rule{Kind: UnavailableAfter}, "PATCH", pods + "/a", 503, 1, 1},
		"a rule of writes leaves reads alone":                {Rule{Kind: Conflict}, "GET", pods, 200, 1, 0},
		"a rule of watches leaves lists alone":               {Rule{Kind: Expired, On: Watches}, "GET", pods, 200, 1, 0},
		"a watch may be expired":                             {Rule{Kind: Expired, On: Watches}, "GET", pods + "?watch=1", 410, 0, 1},
		"a resource can be left alone":                       {Rule{Kind: Conflict, Without: []string{"leases"}}, "PUT", leases + "/a", 200, 1, 0},
		"a rule of one resource leaves others alone":         {Rule{Kind: Conflict, Only: []string{"leases"}}, "PUT", pods + "/a", 200, 1, 0},
		"and is about that one":                              {Rule{Kind: Conflict, Only: []string{"leases"}}, "PUT", leases + "/a", 409, 0, 1},
		"what is no resource is left alone":                  {Rule{Kind: Unavailable, On: Reads}, "GET", "/version", 200, 1, 0},
		"a slow request is carried out":                      {Rule{Kind: Slow, AtMost: time.Millisecond}, "PUT", pods + "/a", 200, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, 1)
			if tc.rule.On == 0 {
				tc.rule.On = Writes
			}
			tc.rule.Share = 1
			s.Set([]Rule{tc.rule})
			code, body := s.ask(t, tc.method, tc.path)
			if code != tc.wantCode || s.hits.Load() != tc.wantHits || s.Counts()[tc.rule.Kind] != tc.want {
				t.Errorf("answer %d (%s), %d requests at the server, counted %d; want %d, %d, %d",
					code, body, s.hits.Load(), s.Counts()[tc.rule.Kind], tc.wantCode, tc.wantHits, tc.want)
			}
			if code >= 400 {
				var status metav1.Status
				if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || int(status.Code) != code {
					t.Errorf("the answer is no Status of code %d: %s", code, body)
				}
			}
			s.Set(nil)
			if code, body := s.ask(t, "POST", pods); code != 200 || body != "POST "+pods+" x" {
				t.Errorf("without rules the answer is %d %s", code, body)
			}
		})
	}
}

// TestLateRequest: a late request is carried out after its client gave up.
func TestLateRequest(t *testing.T) {
	s := newStand(t, 1)
	s.Set([]Rule{{Kind: Late, On: Writes, Share: 1, AtMost: 200 * time.Millisecond}})
	if code, _ := s.ask(t, "POST", pods); code != 0 {
		t.Errorf("the client has the answer %d", code)
	}
	testkit.Soon(t, "the late request is counted", func() bool { return s.Counts()[Late] > 0 })
	if s.hits.Load() != 1 || s.Counts()[Late] != 1 {
		t.Errorf("%d requests at the server, %d counted, want one", s.hits.Load(), s.Counts()[Late])
	}
}

// watchOf starts a watch and returns its lines as they come; an empty one is its end.
func (s *stand) watchOf(t *testing.T) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+pods+"?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req) //nolint:bodyclose // the goroutine closes it
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	go func() {
		defer resp.Body.Close()
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				lines <- ""
				return
			}
			lines <- strings.TrimSpace(line)
		}
	}()
	return lines
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case l := <-lines:
		return l
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing comes")
		return ""
	}
}

// TestWatchDelays: watches are delayed in order and cut.
func TestWatchDelays(t *testing.T) {
	s := newStandAt(t, 1, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	lines := s.watchOf(t)
	s.feed <- "one"
	if got := next(t, lines); got != "one" {
		t.Fatalf("got %q", got)
	}
	const lag = 300 * time.Millisecond
	s.DelayWatches(lag)
	s.feed <- "two"
	testkit.Soon(t, "the first event waits", s.clock.HasWaiters)
	s.clock.Step(lag - 1)
	s.feed <- "three"
	testkit.Soon(t, "the second event waits behind it", func() bool { return s.Counts()[WatchDelay] >= 2 && s.Watches()[0].Waiting > 0 })
	select {
	case got := <-lines:
		t.Fatalf("got %q before its time", got)
	default:
	}
	s.clock.Step(1)
	if got := next(t, lines); got != "two" {
		t.Fatalf("got %q, want two", got)
	}
	testkit.Soon(t, "the second event waits for its own time", s.clock.HasWaiters)
	s.clock.Step(lag)
	if got := next(t, lines); got != "three" {
		t.Fatalf("got %q, want three", got)
	}
	if w := s.Watches(); len(w) != 1 || w[0].Resource != "pods" || w[0].Waiting != 0 || !w[0].Delivered.Equal(s.clock.Now()) {
		t.Errorf("watches %+v, want one of pods that has delivered all", w)
	}
	s.CutWatches("nodes", "pods")
	if n := s.Counts()[WatchCut]; n != 0 {
		t.Errorf("%d cuts of watches to spare", n)
	}
	s.CutWatches("nodes")
	if got := next(t, lines); got != "" {
		t.Errorf("after the cut came %q", got)
	}
	if w := s.Watches(); len(w) != 0 {
		t.Errorf("after the cut run %+v", w)
	}
	if s.Counts()[WatchCut] != 1 {
		t.Errorf("%d cuts are counted, want 1", s.Counts()[WatchCut])
	}
}

// TestDeadServer: a dead server is a dead proxy.
func TestDeadServer(t *testing.T) {
	s := newStand(t, 1)
	s.backend.Host = "127.0.0.1:1" // nobody listens there
	if code, body := s.ask(t, "GET", pods); code != 0 {
		t.Errorf("the answer is %d %s, want none", code, body)
	}
}
