// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// sample is one line of a metrics page.
type sample struct {
	series string // name and labels as printed
	value  float64
}

// samples are what a scheduler's metrics page said at one moment.
type samples []sample

// sum adds up the series of a name that carry all of the labels, each written
// key="value"; 0 when there is none, as a counter that nothing has counted yet
// is not printed.
func (s samples) sum(name string, labels ...string) float64 {
	var total float64
next:
	for _, x := range s {
		series, rest, _ := strings.Cut(x.series, "{")
		if series != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total += x.value
	}
	return total
}

// scrape reads a scheduler's metrics as the administrator.
func (e *testEnv) scrape(t *testing.T, s *devcluster.Scheduler) samples {
	t.Helper()
	cfg := e.RESTConfig()
	// Its certificate is self-signed in its own folder.
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("https://127.0.0.1:%d/metrics", s.Port())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s: %.200s", url, resp.Status, body)
	}
	var out samples
	for line := range strings.Lines(string(body)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatalf("%s prints %q: %v", url, line, err)
		}
		out = append(out, sample{line[:at], v})
	}
	return out
}
