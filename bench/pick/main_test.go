// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// TestMain lets the test binary be the child process that picks once.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == onceArg {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestShortRun(t *testing.T) {
	r, err := measure(t.Context(), shortConfig(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if r.Allocator == "" {
		t.Error("the version of go-gpuallocator is not recorded")
	}
	checkOurs(t, r)
	checkOutcomes(t, r)
	if checked, same := r.agreement(); checked < 100 || same != checked {
		t.Errorf("ours equals the brute force in %d of %d cases", same, checked)
	}
	for _, b := range r.Builds {
		if wantTables := map[bool]int{true: 1, false: 3}[b.GPUs <= 8]; b.Tables != wantTables || b.Bytes <= 0 {
			t.Errorf("%s: %d answer tables in %d bytes, want %d tables", b.Machine, b.Tables, b.Bytes, wantTables)
		}
		if b.GPUs > 8 && (b.First.Min() <= b.New.Min() || b.All.Max() < b.First.Max()) {
			t.Errorf("%s: new %v, first table %v, all tables %v µs", b.Machine, b.New, b.First, b.All)
		}
	}
	checkOutput(t, r)
}

// checkOurs: in all measurements our picks are the best.
func checkOurs(t *testing.T, r *outcomeOfRun) {
	t.Helper()
	seen := map[int]bool{}
	for _, s := range r.Summaries {
		if !strings.HasPrefix(s.Picker, "ours") && s.Picker != plain {
			continue
		}
		seen[s.GPUs] = true
		if s.Regret != 0 || s.Optimal != 100 || s.Failed != 0 || s.Choices == 0 {
			t.Errorf("%d GPUs, %s: regret %v, %v %% optimal, %d failed of %d", s.GPUs, s.Picker, s.Regret, s.Optimal, s.Failed, s.Choices)
		}
	}
	for _, n := range sizes {
		if !seen[n] {
			t.Errorf("nothing measured for %d GPUs", n)
		}
	}
}

// checkOutcomes: every picker answered every question, as often as it should.
func checkOutcomes(t *testing.T, r *outcomeOfRun) {
	t.Helper()
	capped := 0
	for i := range r.Cases {
		c := &r.Cases[i]
		for _, o := range c.Outcomes {
			slow := o.Picker == bestEffort && allocatorSteps(len(c.Free), c.K) > r.Config.Slow
			if slow && strings.HasPrefix(o.Failed, "more than") {
				capped++
			}
			if len(o.NS) != r.Config.Repeats && !slow || len(o.NS) == 0 || o.NS.Min() <= 0 {
				t.Errorf("%s, %s, k %d, %s: times %v", c.Machine, c.Kind, c.K, o.Picker, o.NS)
			}
			if o.Failed == "" && o.Picker != emptyRead && (len(o.Set) != c.K || o.RegretGBps < 0) {
				t.Errorf("%s, %s, k %d, %s: set %v, regret %v", c.Machine, c.Kind, c.K, o.Picker, o.Set, o.RegretGBps)
			}
		}
	}
	if capped == 0 {
		t.Error("no pick of millions of steps ran into the limit")
	}
}

func checkOutput(t *testing.T, r *outcomeOfRun) {
	t.Helper()
	var b bytes.Buffer
	if err := r.write(&b, report.Capture(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8 GPUs", "16 GPUs", "20 GPUs", bestEffort, "dgx2, dependent", "KiB per class"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	path := filepath.Join(t.TempDir(), "bench-pick.json")
	if err := report.WriteJSON(path, report.Environment{}, r); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Result outcomeOfRun }
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Result.Cases) != len(r.Cases) || len(got.Result.Builds) != len(r.Builds) {
		t.Errorf("read back %d cases and %d builds, want %d and %d", len(got.Result.Cases), len(got.Result.Builds), len(r.Cases), len(r.Builds))
	}
}

// TestPickOnceErrors: a pick that cannot be made is refused.
func TestPickOnceErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"too few arguments":  {"dgx2"},
		"an unknown machine": {"abacus", "3", "1"},
		"a broken free set":  {"dgx2", "all", "1"},
		"a broken size":      {"dgx2", "3", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := dispatch(t.Context(), append([]string{onceArg}, args...), &bytes.Buffer{}, t.Output()); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestDurations(t *testing.T) {
	for ns, want := range map[float64]string{0: "0 ns", 0.0123: "0.012 ns", 2.345: "2.35 ns", 99.96: "100 ns", 999.4: "999 ns", 999.6: "1.00 µs", 12_340: "12.3 µs", 5e9: "5.00 s", 2e11: "200 s"} {
		if got := duration(ns); got != want {
			t.Errorf("%v ns is %q, want %q", ns, got, want)
		}
	}
}
