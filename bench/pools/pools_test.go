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

	"github.com/nvtopo/nvtopo/internal/testrig"
)

// TestShortRun measures a few jobs on a few nodes with the real Kueue.
func TestShortRun(t *testing.T) {
	testrig.Kueue(t)
	testrig.Kwok(t)
	testrig.Program(t, "nvtopo-scheduler")
	testrig.Program(t, "nvtopo-pool-controller")
	dir, err := os.MkdirTemp("", "nb-") //nolint:usetesting // etcd's sockets need a path shorter than t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)

	out := t.TempDir()
	var stdout bytes.Buffer
	args := []string{"-nodes", "8", "-jobs", "12", "-tenants", "2", "-repeats", "1", "-bin", testrig.Bin(), "-out", out}
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

func TestRatiosCompareCellsOfTheSameRepeat(t *testing.T) {
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

func TestMoreJobsThanFitAreRefused(t *testing.T) {
	_, err := parse([]string{"-nodes", "10", "-jobs", "21"}, t.Output())
	if want := "-jobs: 10 nodes hold 20 jobs of 4 GPUs"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
