// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

func short(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(append([]string{"-short", "-out", t.TempDir()}, args...), io.Discard, "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestShortRun: a short run reports everything.
func TestShortRun(t *testing.T) {
	o := short(t)
	var b bytes.Buffer
	if err := run(t.Context(), o, &b, io.Discard); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(o.out, "bench-quality.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Environment map[string]any
		Result      struct {
			Seeds []uint64
			Cells []struct {
				Cluster, Trace         string
				BestOther, BestForeign string
				Policies               []struct {
					Policy           string
					Fields, OursLess map[string]struct{ Mean, CI95 *float64 }
					Seeds            map[string][]*float64
				}
			}
			Checks []Check
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Environment) == 0 || len(got.Result.Seeds) != 2 {
		t.Errorf("environment %v, seeds %v", got.Environment, got.Result.Seeds)
	}
	// Two loads of the mix and, but for machines of different size, the traces besides
	// it, and the mix under a policy.
	want := 0
	for _, k := range kinds() {
		want += 2
		if !k.sizes {
			want += len(o.extra) + 1
		}
	}
	if len(got.Result.Cells) != want {
		t.Errorf("%d cells, want %d", len(got.Result.Cells), want)
	}
	for _, c := range got.Result.Cells {
		var names []string
		for _, p := range c.Policies {
			names = append(names, p.Policy)
			for _, col := range columns() {
				if f, ok := p.Fields[col.field]; !ok || f.Mean == nil {
					t.Errorf("%s, %s, %s: no %s", c.Cluster, c.Trace, p.Policy, col.field)
				}
				if len(p.Seeds[col.field]) != 2 {
					t.Errorf("%s, %s, %s: %s has %d seeds", c.Cluster, c.Trace, p.Policy, col.field, len(p.Seeds[col.field]))
				}
			}
			if p.Policy != sim.Ours && p.OursLess[fieldBest].Mean == nil {
				t.Errorf("%s, %s, %s: no difference from ours", c.Cluster, c.Trace, p.Policy)
			}
		}
		want := slices.DeleteFunc(sim.Policies(), func(p string) bool { return strings.HasPrefix(p, "reserve+") })
		if diff := cmp.Diff(append(want, oursNoFragmentation, oursNoResidual), names); diff != "" {
			t.Errorf("%s, %s: policies (-want,+got)\n%s", c.Cluster, c.Trace, diff)
		}
		if !slices.Contains(names, c.BestOther) || !isPeer(c.BestOther) {
			t.Errorf("%s, %s: best other policy %q", c.Cluster, c.Trace, c.BestOther)
		}
		if !slices.Contains(names, c.BestForeign) || !isForeign(c.BestForeign) {
			t.Errorf("%s, %s: best policy without our tables %q", c.Cluster, c.Trace, c.BestForeign)
		}
	}
	for _, want := range []string{"two-socket PCIe (l40s-8), 8 nodes, multigpu50, load 0.95", "gb200-tray and hgx-b200, half each, 8 nodes", "| binpack+exact ", "Check list: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, figure := range []string{"best-class", "stranded", "wait"} {
		if _, err := os.Stat(filepath.Join(o.out, "plots", "quality-"+figure+"-8.svg")); err != nil {
			t.Error(err)
		}
	}
}

// TestResultWorkers: the result does not depend on the number of workers.
func TestResultWorkers(t *testing.T) {
	one, err := measure(t.Context(), short(t, "-workers", "1"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	three, err := measure(t.Context(), short(t, "-workers", "3"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, three, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
}

// TestOursNotWorse: our policy is not below the others. The requirement is low: on few machines,
// the order of the policies, and their distance, is partly luck.
func TestOursNotWorse(t *testing.T) {
	o := short(t, "-seeds", "2")
	o.nodes, o.pods, o.loads, o.extra = 24, 1500, []float64{0.85}, nil
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		ours, other := c.policy(sim.Ours).Fields[fieldBest].Mean, c.policy(c.BestOther).Fields[fieldBest].Mean
		if ours < other || math.IsNaN(ours) {
			t.Errorf("%s: ours %.3f, %s %.3f", c.String(), ours, c.BestOther, other)
		}
		if n := c.policy(sim.Ours).Fields[fieldRejections].Mean; n != 0 {
			t.Errorf("%s: %g rejections", c.String(), n)
		}
	}
}

// cellWith returns a cell of ours, the reference and one more policy, two seeds each.
func cellWith(c Cell, ours, ref, third map[string]Series) *CellSummary {
	out := &CellSummary{Cell: c}
	for _, p := range []struct {
		name  string
		seeds map[string]Series
	}{{sim.Ours, ours}, {reference, ref}, {"fgd+exact", third}} {
		s := PolicySummary{Policy: p.name, Seeds: p.seeds, Fields: map[string]Estimate{}}
		for field, v := range p.seeds {
			s.Fields[field] = v.estimate()
		}
		out.Policies = append(out.Policies, s)
	}
	out.compare()
	return out
}

func fields(best, allocation, wait, stranded, rejections float64) map[string]Series {
	two := func(v float64) Series { return Series{v, v} }
	return map[string]Series{
		fieldBest: two(best), fieldAllocation: two(allocation), fieldWaitMulti: two(wait), fieldStranded: two(stranded), fieldRejections: two(rejections),
	}
}

func TestChecks(t *testing.T) {
	ref, third := fields(0.76, 0.85, 100, 0.2, 0), fields(0.80, 0.85, 300, 0.2, 5)
	tests := map[string]struct {
		cell       Cell
		ours       map[string]Series
		wantChecks int
		wantMissed []string
	}{
		"everything is kept": {
			Cell{Trace: traceMix, Nodes: 64, Load: 0.85}, fields(0.99, 0.8451, 109, 0.219, 0), 6, nil,
		},
		"everything is missed": {
			Cell{Trace: traceMix, Nodes: 64, Load: 0.85}, fields(0.94, 0.84, 111, 0.23, 1), 6, []string{
				"no kubelet rejections", "ours in the best class", "ours less fgd+exact, best class",
				"allocation less binpack+exact", "wait of multi-GPU pods by binpack+exact's", "stranded for four less binpack+exact",
			},
		},
		"a higher load asks for less": {
			Cell{Trace: traceMix, Nodes: 64, Load: 0.95}, fields(0.955, 0.85, 100, 0.2, 0), 6, nil,
		},
		"on a large cluster the way to 100 % counts": {
			Cell{Trace: traceMix, Nodes: 640, Load: 0.95}, fields(0.97, 0.85, 100, 0.2, 0), 6, []string{"ours on the way from fgd+exact to 100 %"},
		},
		"a load without promises is not held to them": {
			Cell{Trace: traceMix, Nodes: 64, Load: 1.05}, fields(0.5, 0.5, 900, 0.9, 0), 1, nil,
		},
		"other traces have no promise but that of rejections": {
			Cell{Trace: tracePhilly, Nodes: 64, Load: 0.85}, fields(0.5, 0.5, 900, 0.9, 1), 1, []string{"no kubelet rejections"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			checks := checksOf(cellWith(tc.cell, tc.ours, ref, third), 64)
			var missed []string
			for _, c := range checks {
				if !c.Pass {
					missed = append(missed, c.Promise)
				}
			}
			if len(checks) != tc.wantChecks {
				t.Errorf("%d checks, want %d", len(checks), tc.wantChecks)
			}
			if diff := cmp.Diff(tc.wantMissed, missed); diff != "" {
				t.Errorf("missed (-want,+got)\n%s", diff)
			}
		})
	}
}

// TestEightGPUPodWaits: pods of eight GPUs wait no longer on machines of different size.
func TestEightGPUPodWaits(t *testing.T) {
	waits := func(s float64) map[string]Series {
		out := fields(0.9, 0.85, 100, 0.2, 0)
		out[fieldWait8] = Series{s, s}
		return out
	}
	for name, tc := range map[string]struct {
		ours     float64
		wantPass bool
	}{
		"as long as with the better other policy": {200, true},
		"longer than with that":                   {201, false},
	} {
		t.Run(name, func(t *testing.T) {
			cell := Cell{Cluster: "gb200-tray+hgx-b200", Trace: traceMix, Nodes: 64, Load: 0.85}
			checks := checksOf(cellWith(cell, waits(tc.ours), waits(300), waits(200)), 64)
			if len(checks) != 2 || checks[1].Promise != "wait of pods of 8 GPUs by fgd+exact's" || checks[1].Pass != tc.wantPass {
				t.Errorf("checks: %+v, want that of rejections and one of fgd+exact that is kept: %v", checks, tc.wantPass)
			}
		})
	}
}

// TestUndecidedChecks: checks report undecided results.
func TestUndecidedChecks(t *testing.T) {
	cell := func(best Series) []Check {
		ours := fields(0, 0.85, 100, 0.2, 0)
		ours[fieldBest] = best
		return checksOf(cellWith(Cell{Trace: traceMix, Nodes: 64, Load: 0.85}, ours, fields(0.76, 0.85, 100, 0.2, 0), fields(0.7, 0.85, 100, 0.2, 0)), 64)
	}
	for name, tc := range map[string]struct {
		best              Series
		wantPass, decided bool
	}{
		"seeds that agree to keep":    {Series{0.995, 0.9951}, true, true},
		"seeds that agree to miss":    {Series{0.985, 0.9851}, false, true},
		"seeds on both sides, kept":   {Series{0.985, 0.999}, true, false},
		"seeds on both sides, missed": {Series{0.97, 0.999}, false, false},
		"one seed has no interval":    {Series{0.995}, true, true},
		"one seed, missed, is missed": {Series{0.985}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			checks := cell(tc.best)
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Promise == "ours in the best class" })
			if got := checks[i]; got.Pass != tc.wantPass || got.Decided != tc.decided {
				t.Errorf("kept %v, decided %v; want %v, %v", got.Pass, got.Decided, tc.wantPass, tc.decided)
			}
		})
	}
}

// TestPairedDifferences: differences are paired.
func TestPairedDifferences(t *testing.T) {
	// The seeds differ by far more than the policies do.
	ours := map[string]Series{fieldBest: {0.91, 0.51, 0.71}}
	theirs := map[string]Series{fieldBest: {0.90, 0.50, 0.70}}
	c := cellWith(Cell{}, ours, theirs, map[string]Series{fieldBest: {0.1, 0.1, math.NaN()}})
	d := c.policy(reference).OursLess[fieldBest]
	if math.Abs(d.Mean-0.01) > 1e-12 || d.CI95 > 1e-12 {
		t.Errorf("difference %v ± %v, want 0.01 without spread", d.Mean, d.CI95)
	}
	if got := c.policy("fgd+exact").Fields[fieldBest].Mean; math.Abs(got-0.1) > 1e-12 {
		t.Errorf("mean with a seed missing is %v, want 0.1", got)
	}
}

// TestNonJSONNumbers: numbers that JSON lacks are null.
func TestNonJSONNumbers(t *testing.T) {
	got, err := json.Marshal([]any{Estimate{0.5, math.NaN()}, Series{1, math.NaN()}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`[{"mean":0.5,"ci95":null},[1,null]]`, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"no seeds": {"-seeds", "0"}, "no workers": {"-workers", "0"}, "an argument": {"x"}, "an unknown flag": {"-x"},
		"an unknown cluster": {"-clusters", "mixed,x"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(args, io.Discard, ""); err == nil || errors.Is(err, flag.ErrHelp) {
				t.Errorf("error %v", err)
			}
		})
	}
	o, err := parse([]string{"-wide", "-seeds", "3"}, io.Discard, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{0.75, 0.85, 0.95, 1.05}, o.loads); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3}, o.seeds); diff != "" {
		t.Error(diff)
	}
	if len(o.kinds) != len(kinds()) {
		t.Errorf("%d kinds of clusters, want all %d", len(o.kinds), len(kinds()))
	}
	if o, err := parse([]string{"-clusters", "mixed,gb200-tray+hgx-b200"}, io.Discard, ""); err != nil || len(o.kinds) != 2 || !o.kinds[1].sizes {
		t.Errorf("two kinds of clusters: %+v, error %v", o, err)
	}
	if len(o.extra) != 1 {
		t.Errorf("%d traces besides the mix from an empty directory of fixtures, want 1", len(o.extra))
	}
}

// TestOpenbFixtures: the openb trace is read from the fixtures.
func TestOpenbFixtures(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(openbFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	list := "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,4,1000\np1,1,1,0,0\np2,1,1,8,1000\n"
	if err := os.WriteFile(filepath.Join(dir, openbFile), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	src, ok, err := openb(dir)
	if err != nil || !ok {
		t.Fatalf("found: %v, error %v", ok, err)
	}
	jobs, err := src.jobs(1)
	if err != nil {
		t.Fatal(err)
	}
	var gpus []int
	for _, j := range jobs {
		gpus = append(gpus, j.GPUs)
	}
	slices.Sort(gpus) // the seed draws the order
	if diff := cmp.Diff([]int{4, 8}, gpus); diff != "" {
		t.Error(diff)
	}
}
