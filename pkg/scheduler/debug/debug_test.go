// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// believer is a Diagnoser with a fixed state.
type believer diagnosis.State

func (b *believer) Diagnose(name string) *diagnosis.State {
	d := diagnosis.State(*b)
	d.Name = name
	return &d
}

// TestHandler: the handler serves the state and nothing else.
func TestHandler(t *testing.T) {
	b := believer{
		Version: diagnosis.Version, At: time.Unix(1_700_000_000, 0).UTC(), Synced: true,
		Claims: []diagnosis.Reservation{{Pod: "default/p", Node: "n", UID: "u", Phase: "reserved", Since: time.Unix(1_600_000_000, 0).UTC(), GPUs: []string{"GPU-0"}}},
		Nodes:  []diagnosis.Node{{Name: "n", Counts: true, Derived: &diagnosis.Usage{Used: map[string][]string{"nvidia.com/gpu": {"GPU-0"}}}}},
	}
	h := Handler(&b, "me")
	tests := map[string]struct {
		method, path string
		want         int
	}{
		"the state":          {http.MethodGet, diagnosis.Path, http.StatusOK},
		"a write":            {http.MethodPost, diagnosis.Path, http.StatusMethodNotAllowed},
		"another path":       {http.MethodGet, "/debug/pprof/", http.StatusNotFound},
		"a path below":       {http.MethodGet, diagnosis.Path + "/x", http.StatusNotFound},
		"the root":           {http.MethodGet, "/", http.StatusNotFound},
		"the state's header": {http.MethodHead, diagnosis.Path, http.StatusOK},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, http.NoBody))
			if w.Code != tc.want {
				t.Fatalf("status %d, want %d", w.Code, tc.want)
			}
			if tc.want != http.StatusOK || tc.method == http.MethodHead {
				return
			}
			var got diagnosis.State
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*b.Diagnose("me"), got); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}
