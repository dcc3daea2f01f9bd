// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

var update = flag.Bool("update", false, "write what the front end checks its types against")

// TestPageDocuments compares the documents of a sample cluster with the files that the front
// end checks its types against (ui/src/api.test.ts), or writes these.
func TestPageDocuments(t *testing.T) {
	c := sample(t)
	pending := c.AddPod("pending", "", 4)
	pending.Status.Phase = v1.PodPending
	b := newTestEnv(t, c, nil)
	for name, path := range map[string]string{
		"cluster":         "cluster",
		"workloads":       "workloads",
		"node":            "nodes/pcie-0",
		"node-graph":      "nodes/v100-0",
		"explain-pending": "explain/pod/default/pending",
		"explain-bound":   "explain/pod/default/infer-0",
		"gangs":           "gangs",
		"gang":            "gangs/default/train",
		"history":         "history/default/infer-0",
		"pools":           "pools",
		"pools-bills":     "pools/bills",
		"pools-usage":     "pools/usage",
		"pools-hours":     "pools/hours?since=30d",
	} {
		head, text := b.ask(t, asked{path: "/api/v1/" + path})
		if head.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, head.StatusCode, text)
			continue
		}
		file := filepath.Join(testkit.Repository(), "ui", "src", "testdata", name+".json")
		got := readable(t, text)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil { //nolint:gosec // a file of the repository
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(want, got) {
			t.Errorf("%s is not what the API answers (%v); -update writes it", file, err)
		}
	}
}

// versions count changes, and depend on when the server read what.
var versions = regexp.MustCompile(`"version":\d+`)

func readable(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, versions.ReplaceAll([]byte(text), []byte(`"version":1`)), "", " "); err != nil {
		t.Fatal(err)
	}
	out.WriteByte('\n')
	return out.Bytes()
}
