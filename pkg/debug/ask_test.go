// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/whatif"
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
			a := &whatIf{
				write: func(w io.Writer) error { _, err := io.WriteString(w, "snapshot"); return err },
				ready: func() error { return tc.notReady },
				ask: func(_ context.Context, write func(io.Writer) error, asked []byte) ([]byte, error) {
					var text strings.Builder
					if err := write(&text); err != nil {
						return nil, err
					}
					if string(asked) != tc.body {
						t.Errorf("asked for %q", asked)
					}
					return []byte("asked by " + text.String()), tc.fails
				},
				turn: make(chan struct{}, 1),
			}
			if tc.busy {
				a.turn <- struct{}{}
			}
			mux := http.NewServeMux()
			a.register(mux)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body)))
			if w.Code != tc.want || !strings.Contains(w.Body.String(), tc.wantBody) {
				t.Errorf("%d %q, want %d with %q", w.Code, w.Body.String(), tc.want, tc.wantBody)
			}
			if len(a.turn) != 0 && !tc.busy {
				t.Error("the turn was not given back")
			}
		})
	}
}
