// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

const askedPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"

func TestWhatIfHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path, body string
		notReady, fails    error
		busy               bool
		want               int
		wantBody           string
	}{
		"a question":           {method: http.MethodPost, path: whatif.Path, body: askedPod, want: http.StatusOK, wantBody: "asked by snapshot"},
		"the snapshot":         {method: http.MethodGet, path: whatif.SnapshotPath, want: http.StatusOK, wantBody: "snapshot"},
		"a question by GET":    {method: http.MethodGet, path: whatif.Path, want: http.StatusMethodNotAllowed},
		"too long":             {method: http.MethodPost, path: whatif.Path, body: strings.Repeat("x", maxAsked+1), want: http.StatusBadRequest, wantBody: "too large"},
		"while another waits":  {method: http.MethodPost, path: whatif.Path, body: askedPod, busy: true, want: http.StatusTooManyRequests},
		"at a standby":         {method: http.MethodPost, path: whatif.Path, body: askedPod, notReady: errors.New("does not lead"), want: http.StatusServiceUnavailable, wantBody: "does not lead"},
		"of a pod at fault":    {method: http.MethodPost, path: whatif.Path, body: askedPod, fails: fmt.Errorf("%w: its field", whatif.ErrAsked), want: http.StatusBadRequest, wantBody: "its field"},
		"when the child fails": {method: http.MethodPost, path: whatif.Path, body: askedPod, fails: errors.New("killed"), want: http.StatusInternalServerError, wantBody: "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newWhatIf(writeSnapshot, func() error { return tc.notReady }, func(_ context.Context, write func(io.Writer) error, asked []byte) ([]byte, error) {
				var text strings.Builder
				if err := write(&text); err != nil {
					return nil, err
				}
				if string(asked) != tc.body {
					t.Errorf("asked for %q", asked)
				}
				return []byte("asked by " + text.String()), tc.fails
			})
			if tc.busy {
				a.turn <- struct{}{}
				a.turnTime = 0
			}
			code, body := request(t, serve(t, a), tc.method, tc.path, tc.body)
			if code != tc.want || !strings.Contains(body, tc.wantBody) {
				t.Errorf("%d %q, want %d with %q", code, body, tc.want, tc.wantBody)
			}
			if len(a.turn) != 0 && !tc.busy {
				t.Error("the turn was not given back")
			}
		})
	}
}

// TestTurns: a request that comes while another is being answered waits, and is answered then.
func TestTurns(t *testing.T) {
	goOn := make(chan struct{})
	a := newWhatIf(writeSnapshot, func() error { return nil }, func(context.Context, func(io.Writer) error, []byte) ([]byte, error) {
		<-goOn
		return []byte("an answer"), nil
	})
	a.turnTime = time.Hour
	server := serve(t, a)
	const questions = 3
	codes := make(chan int, questions)
	for range questions {
		go func() {
			code, _ := request(t, server, http.MethodPost, whatif.Path, askedPod)
			codes <- code
		}()
	}
	testkit.Eventually(t, 2*time.Minute, "all questions are read", func(context.Context) (done bool, seen string) {
		return len(a.bodies) == questions && len(a.turn) == 1, fmt.Sprintf("%d are", len(a.bodies))
	})
	close(goOn)
	for range questions {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d, want %d", code, http.StatusOK)
		}
	}
}

// TestSlowClient: a slow client does not delay others. While one does not send its question, others are
// answered. In the end it is refused.
func TestSlowClient(t *testing.T) {
	a := newWhatIf(writeSnapshot, func() error { return nil }, func(context.Context, func(io.Writer) error, []byte) ([]byte, error) {
		return []byte("an answer"), nil
	})
	a.bodyTime = time.Second
	server := serve(t, a)
	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }() // the server has closed it
	if _, err := fmt.Fprintf(slow, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n", whatif.Path); err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 1) // the server's only response, which ends the connection
	go func() {
		answer, err := io.ReadAll(slow)
		answers <- fmt.Sprintf("%s, error %v", answer, err)
	}()
	testkit.Eventually(t, 2*time.Minute, "the slow client's question to be read", func(context.Context) (done bool, seen string) {
		return len(a.bodies) > 0 || len(answers) > 0, "no question is read"
	})
	for method, path := range map[string]string{http.MethodPost: whatif.Path, http.MethodGet: whatif.SnapshotPath} {
		if code, body := request(t, server, method, path, ""); code != http.StatusOK {
			t.Errorf("%s %s: %d %q", method, path, code, body)
		}
	}
	if answer := <-answers; !strings.HasSuffix(answer, "error <nil>") || !strings.Contains(answer, "400 Bad Request") || !strings.Contains(answer, "timeout") {
		t.Errorf("the slow client read %q", answer)
	}
}

// TestLimitedOutput: a limited buffer keeps the beginning, and does not stop a child that writes on.
func TestLimitedOutput(t *testing.T) {
	var kept strings.Builder
	l := &limited{to: &kept, left: 5}
	for _, text := range []string{"abc", "defg", "h"} {
		if n, err := io.WriteString(l, text); n != len(text) || err != nil {
			t.Errorf("writing %q: %d, %v", text, n, err)
		}
	}
	if kept.String() != "abcde" {
		t.Errorf("kept %q", kept.String())
	}
}

func writeSnapshot(w io.Writer) error { _, err := io.WriteString(w, "snapshot"); return err }

func serve(t *testing.T, a *whatIf) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	a.register(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func request(t *testing.T, server *httptest.Server, method, path, body string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
