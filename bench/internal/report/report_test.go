// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func near(got, want float64) bool {
	return math.IsNaN(got) && math.IsNaN(want) || got == want || math.Abs(got-want) < 5e-4*max(1, math.Abs(want))
}

func TestSampleStatistics(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := map[string]struct {
		sample                                     Sample
		wantMedian, wantLo, wantHi, wantMean, want float64
	}{
		"an empty sample has no statistics":     {nil, nan, nan, nan, nan, nan},
		"one value has no interval":             {Sample{7}, 7, 7, 7, 7, nan},
		"an odd number has a middle":            {Sample{5, 1, 4, 2, 3}, 3, 2, 4, 3, 2.776445 * math.Sqrt(2.5/5)},
		"an even number has two middles":        {Sample{4, 1, 3, 2}, 2.5, 1.75, 3.25, 2.5, 3.182446 * math.Sqrt(5.0/3/4)},
		"an infinite value is kept":             {Sample{1, 2, inf}, 2, 1.5, inf, inf, nan},
		"two values have one degree of freedom": {Sample{0, 2}, 1, 0.5, 1.5, 1, 12.7062},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lo, hi := tc.sample.Quartiles()
			got := [...]float64{tc.sample.Median(), lo, hi, tc.sample.Mean(), tc.sample.CI95()}
			for i, want := range [...]float64{tc.wantMedian, tc.wantLo, tc.wantHi, tc.wantMean, tc.want} {
				if !near(got[i], want) {
					t.Errorf("%s is %v, want %v", [...]string{"median", "lower quartile", "upper quartile", "mean", "CI95"}[i], got[i], want)
				}
			}
		})
	}
}

// TestSampleOrder: a sample is not reordered.
func TestSampleOrder(t *testing.T) {
	s := Sample{3, 1, 2}
	s.Median()
	if diff := cmp.Diff(Sample{3, 1, 2}, s); diff != "" {
		t.Error(diff)
	}
}

func TestStudentQuantiles(t *testing.T) {
	// From the printed tables.
	for df, want := range map[int]float64{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 19: 2.093, 30: 2.042, 120: 1.980} {
		if got := studentT975(df); math.Abs(got-want) > 5e-4 {
			t.Errorf("%d degrees of freedom: %.4f, want %.3f", df, got, want)
		}
	}
}

// TestTableMarkdown: a table is aligned Markdown.
func TestTableMarkdown(t *testing.T) {
	table := Table{Title: "Picks", Header: []string{"picker", "ns"}}
	table.Add("ours | table", "2")
	table.Add("µ", "12345")
	var b bytes.Buffer
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"Picks", "",
		`| picker        |    ns |`,
		`| ------------- | ----: |`,
		`| ours \| table |     2 |`,
		`| µ             | 12345 |`,
		"", "",
	}, "\n")
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestTableRaggedRows: a table refuses ragged rows.
func TestTableRaggedRows(t *testing.T) {
	table := Table{Header: []string{"a", "b"}, Rows: [][]string{{"1"}}}
	if err := table.Write(&bytes.Buffer{}); err == nil {
		t.Error("a row of one cell under two headers was accepted")
	}
}

// TestWriteJSONDirectory: WriteJSON makes the directory.
func TestWriteJSONDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "bench.json")
	if err := WriteJSON(path, Capture(t.Context()), map[string]int{"n": 3}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Environment Environment
		Result      map[string]int
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Result["n"] != 3 || got.Environment.GoVersion != runtime.Version() || got.Environment.Date.IsZero() {
		t.Errorf("read back %+v", got)
	}
}

// TestWriteJSONErrors: WriteJSON refuses values that JSON cannot hold.
func TestWriteJSONErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := WriteJSON(path, Environment{}, math.NaN()); err == nil {
		t.Error("NaN was accepted")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file was left behind: %v", err)
	}
}

// TestCaptureMachine: Capture finds the machine.
func TestCaptureMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	env := Capture(t.Context())
	if env.Memory < 1<<26 || env.Kernel == "" || env.Cores < 1 || env.GOMAXPROCS < 1 {
		t.Errorf("incomplete: %+v", env)
	}
	if line := env.String(); !strings.Contains(line, env.Kernel) || !strings.Contains(line, runtime.Version()) {
		t.Errorf("the line lacks kernel or Go version: %s", line)
	}
}
