// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestShortRun measures a few jobs on a few nodes with the real Kueue.
func TestShortRun(t *testing.T) {
	testkit.Kueue(t)
	testkit.Kwok(t)
	testkit.Program(t, "nvtopo-scheduler")
	testkit.Program(t, "nvtopo-pool-controller")
	dir, err := os.MkdirTemp("", "nb-") //nolint:usetesting // etcd's sockets need a path shorter than t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)

	out := t.TempDir()
	var stdout bytes.Buffer
	args := []string{"-nodes", "8", "-jobs", "12", "-tenants", "2", "-repeats", "1", "-bin", testkit.Bin(), "-out", out}
	if err := command(t.Context(), args, &stdout, t.Output()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, resultFile))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Result result }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if n := len(file.Result.Cells); n != len(profiles) {
		t.Fatalf("%d cells, want one of each profile", n)
	}
	for _, c := range file.Result.Cells {
		if c.AdmittedSeconds <= 0 || c.BoundSeconds < c.AdmittedSeconds-1 || c.Jobs != 12 {
			t.Errorf("%s: %+v", c.Profile, c)
		}
		if n := c.Requests["POST workloads"]; n != 1 {
			t.Errorf("%s: %v Workloads were made for each job, want one", c.Profile, n)
		}
		for _, p := range processes {
			if c.ResidentMiB[p] <= 0 && (p != processController || c.Profile == profilePools) {
				t.Errorf("%s: %s has %v MiB", c.Profile, p, c.ResidentMiB[p])
			}
		}
	}
	if !strings.Contains(stdout.String(), "| ours with pools ") {
		t.Errorf("no row of ours:\n%s", &stdout)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "nvtopo-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRatioPairing: ratios compare cells of the same repeat.
func TestRatioPairing(t *testing.T) {
	cells := []Cell{
		{Profile: profileStock, Repeat: 0, Jobs: 100, BoundSeconds: 10},
		{Profile: profileOurs, Repeat: 0, Jobs: 100, BoundSeconds: 20},
		{Profile: profileOurs, Repeat: 1, Jobs: 100, BoundSeconds: 10},
		{Profile: profileStock, Repeat: 1, Jobs: 100, BoundSeconds: 10},
		{Profile: profileOurs, Repeat: 2, Jobs: 100, BoundSeconds: 10}, // stock's failed
	}
	if diff := cmp.Diff([]float64{0.5, 1}, []float64(ratios(cells, profileOurs))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestRequestMedians: requests are the median of each scheduler.
func TestRequestMedians(t *testing.T) {
	var cells []Cell
	for repeat, n := range []float64{3, 1, 2} {
		cells = append(cells, Cell{Profile: profileStock, Repeat: repeat, Requests: map[string]float64{"POST pods": n, "GET leases": fewest / 2}})
	}
	cells = append(cells, Cell{Profile: profilePools, Requests: map[string]float64{"PATCH workloads/status, refused: 409": 4}})
	want := [][]string{
		{"PATCH workloads/status, refused: 409", "0.00", "–", "4.00"},
		{"POST pods", "2.00", "–", "0.00"},
	}
	if diff := cmp.Diff(want, requestTable(&options{Profiles: profiles}, cells).Rows); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMetricSums: metrics are added up by request.
func TestMetricSums(t *testing.T) {
	metric := func(n float64, pairs ...string) *dto.Metric {
		m := &dto.Metric{Counter: &dto.Counter{Value: &n}}
		for i := 0; i < len(pairs); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
		}
		return m
	}
	got := byRequest([]*dto.Metric{
		metric(2, "verb", "PATCH", "resource", "workloads", "subresource", "status", "code", "200", "version", "v1beta1"),
		metric(3, "verb", "PATCH", "resource", "workloads", "subresource", "status", "code", "200", "version", "v1beta2"),
		metric(1, "verb", "PATCH", "resource", "workloads", "subresource", "status", "code", "409"),
		metric(5, "verb", "POST", "resource", "pods", "code", "201"),
	})
	want := map[string]float64{"PATCH workloads/status": 5, "PATCH workloads/status, refused: 409": 1, "POST pods": 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"POST pods": 1.5}, perJob(map[string]float64{"GET pods": 1, "POST pods": 2}, map[string]float64{"GET pods": 1, "POST pods": 5}, 2)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestFlagErrors: flags are refused.
func TestFlagErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"more jobs than fit":          {args: []string{"-nodes", "10", "-jobs", "21"}, want: "-jobs: 10 nodes hold 20 jobs of 4 GPUs"},
		"a profile that there is not": {args: []string{"-profiles", "stock,mine"}, want: `-profiles: no "mine", only stock, ours, ours with pools`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tt.args, t.Output()); err == nil || err.Error() != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
