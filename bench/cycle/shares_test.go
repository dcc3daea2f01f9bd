// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	pprofile "github.com/google/pprof/profile"
)

// cpuProfile encodes samples of 1 ms; a stack is given innermost first, functions
// in one string are inlined into each other.
func cpuProfile(t *testing.T, samples []sample) []byte {
	t.Helper()
	p := &pprofile.Profile{
		SampleType: []*pprofile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprofile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e6,
	}
	functions := map[string]*pprofile.Function{}
	for _, s := range samples {
		out := &pprofile.Sample{Value: []int64{1, 1e6}}
		if s.cycle {
			out.Label = map[string][]string{cycleLabel: {"yes"}}
		}
		for _, inlined := range s.stack {
			l := &pprofile.Location{ID: uint64(len(p.Location) + 1)}
			for _, name := range inlined {
				f, ok := functions[name]
				if !ok {
					f = &pprofile.Function{ID: uint64(len(functions) + 1), Name: name}
					functions[name], p.Function = f, append(p.Function, f)
				}
				l.Line = append(l.Line, pprofile.Line{Function: f})
			}
			p.Location = append(p.Location, l)
			out.Location = append(out.Location, l)
		}
		p.Sample = append(p.Sample, out)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type sample struct {
	cycle bool
	stack [][]string
}

// TestAnalyseShare: the analysis of a CPU profile finds our share.
func TestAnalyseShare(t *testing.T) {
	const (
		filter  = ours + "plugins/lifecycle.(*Plugin).Filter"
		judge   = ours + "nodestate.(*State).Judge"
		reserve = ours + "plugins/lifecycle.(*Plugin).Reserve"
		handler = ours + "nodestate.(*State).podBound"
		sched   = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulePod"
		malloc  = "runtime.mallocgc"
	)
	samples := []sample{
		{true, [][]string{{malloc}, {judge, filter}, {sched}}},                                      // ours, in Filter, by an inlined call
		{true, [][]string{{judge}, {judge}, {filter}, {sched}}},                                     // recursion counts once
		{true, [][]string{{malloc}, {sched}}},                                                       // the scheduler's own
		{true, [][]string{{ours + "nodestate.(*State).Reserve"}, {reserve}, {"main.(*rig).cycle"}}}, // by its outermost
		{true, [][]string{{handler}, {"main.x"}}},                                                   // at no extension point
		{false, [][]string{{handler}, {"runtime.goexit"}}},                                          // ours, but not in a cycle
		{false, [][]string{{"runtime.gcBgMarkWorker"}}},
	}
	data := cpuProfile(t, samples)
	u, merged, err := analyse([][]byte{data, data})
	if err != nil {
		t.Fatal(err)
	}
	const ms = int64(1e6)
	want := &usage{
		Cycle: 10 * ms, Outside: 4 * ms, Ours: 8 * ms, Samples: 10,
		Points: map[string]int64{"Filter": 4 * ms, "Reserve": 2 * ms, otherPoint: 2 * ms},
		Top: []function{
			{Name: filter, Cum: 50},
			{Name: judge, Flat: 25, Cum: 50},
			{Name: handler, Flat: 25, Cum: 25},
			{Name: ours + "nodestate.(*State).Reserve", Flat: 25, Cum: 25},
			{Name: reserve, Cum: 25},
			{Name: malloc, Flat: 25, Cum: 25},
		},
	}
	if diff := cmp.Diff(want, u, cmp.Transformer("byName", func(f []function) map[string]function {
		m := map[string]function{}
		for _, x := range f {
			m[x.Name] = x
		}
		return m
	})); diff != "" {
		t.Errorf("usage (-want,+got):\n%s", diff)
	}
	if len(merged.Sample) != len(samples) {
		t.Errorf("%d different samples after the merge, want %d", len(merged.Sample), len(samples))
	}
	if _, _, err := analyse([][]byte{[]byte("no profile")}); err == nil {
		t.Error("something that is no profile was analysed")
	}
}
