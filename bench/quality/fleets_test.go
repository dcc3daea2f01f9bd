// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// TestJudgedRun: a short run judges all policies and orders on a fleet, at equal completion.
func TestJudgedRun(t *testing.T) {
	o := short(t, "-unequal", "-clusters", "dgx2+h200+l40s,gb200+l40s")
	o.loads = o.loads[:1]
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 4 {
		t.Errorf("%d cells, want 4: two fleets, with equal runs and with runs by placement", len(r.Cells))
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if want := 6 + len(otherOrders()); len(c.Policies) != want {
			t.Errorf("%s: %d policies, want %d", c.String(), len(c.Policies), want)
		}
		for _, p := range c.Policies {
			pods := p.Fields["judged.bySize.1.pods"].Mean
			if first := c.Policies[0].Fields["judged.bySize.1.pods"].Mean; pods == 0 || pods != first || p.Fields[fieldUnfinished].Mean != 0 {
				t.Errorf("%s, %s: %v pods of one GPU judged and %v never ran; want %v and 0", c.String(), p.Policy, pods, p.Fields[fieldUnfinished].Mean, first)
			}
			if v := p.Fields[fieldAllReduce].Mean; !(v > 0) {
				t.Errorf("%s, %s: all-reduce of %v ms", c.String(), p.Policy, v)
			}
		}
	}
	var b bytes.Buffer
	if err := writeJudged(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"runs by placement", "reserve+exact", "wait of 8, s", "ours:headroom=1", "All-reduce, ms, load 0.55", "Cells that keep what is promised: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// TestUntilSure: cells whose deciding mean is not precise get more seeds, the others keep
// theirs.
func TestUntilSure(t *testing.T) {
	o := short(t, "-unequal", "-clusters", "gb200+l40s")
	o.loads, o.mostSeeds = o.loads[:1], 5
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		want := o.mostSeeds // with 400 pods nothing is sure
		if c.RunsByPlacement {
			want = len(o.seeds)
		}
		if c.seeds() != want {
			t.Errorf("%s: %d seeds, want %d", c.String(), c.seeds(), want)
		}
		for _, p := range c.Policies {
			if slices.ContainsFunc(p.Seeds[fieldAllReduce], math.IsNaN) {
				t.Errorf("%s, %s: a seed without a result", c.String(), p.Policy)
			}
		}
	}
	of := func(ci float64) *CellSummary {
		return &CellSummary{Policies: []PolicySummary{{Fields: map[string]Estimate{fieldAllReduce: {Mean: 100, CI95: ci}}}}}
	}
	if !of(2.5).sure() || of(2.6).sure() || of(math.NaN()).sure() {
		t.Errorf("half an interval of 2.5, 2.6 and nobody knows how many %% is sure: %t, %t, %t; want only the first", of(2.5).sure(), of(2.6).sure(), of(math.NaN()).sure())
	}
}

// TestPromises: missed promises of a cell are reported.
func TestPromises(t *testing.T) {
	policy := func(name string, ms, single, largest float64) PolicySummary {
		return PolicySummary{Policy: name, Fields: map[string]Estimate{
			fieldAllReduce: {Mean: ms}, fieldLargestWait: {Mean: largest},
			"judged.bySize.1.pods": {Mean: 1}, "judged.bySize.1.meanWaitS": {Mean: single},
			"judged.bySize.8.pods": {Mean: 1}, "judged.bySize.8.meanWaitS": {Mean: largest},
		}}
	}
	tests := map[string]struct {
		ours, reserve, binpack PolicySummary
		want                   []string // in part
	}{
		"all kept":                         {policy(sim.Ours, 10, 0, 100), policy("reserve+exact", 9.6, 0, 90), policy(reference, 20, 0, 60), nil},
		"another is faster":                {policy(sim.Ours, 10, 0, 100), policy("reserve+exact", 9.4, 0, 90), policy(reference, 20, 0, 60), []string{"10.0 ms, reserve+exact 9.4"}},
		"the largest wait":                 {policy(sim.Ours, 10, 0, 130), policy("reserve+exact", 10, 0, 100), policy(reference, 20, 0, 90), []string{"the largest wait"}},
		"a slow policy's waits are none":   {policy(sim.Ours, 10, 0, 130), policy("reserve+exact", 12, 0, 10), policy(reference, 20, 0, 70), nil},
		"small pods wait twice as long":    {policy(sim.Ours, 10, 100, 60), policy("reserve+exact", 10, 0, 60), policy(reference, 20, 40, 60), []string{"pods of 1 wait"}},
		"a minute is nothing":              {policy(sim.Ours, 10, 59, 60), policy("reserve+exact", 10, 0, 0), policy(reference, 20, 0, 0), nil},
		"our own arguments do not count":   {policy(sim.Ours, 10, 0, 100), policy("ours:headroom=1", 5, 0, 1), policy(reference, 20, 0, 60), nil},
		"large pods wait beyond binpack's": {policy(sim.Ours, 10, 0, 130), policy("reserve+exact", 12, 0, 10), policy(reference, 20, 0, 60), []string{"pods of 8 wait"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &CellSummary{Policies: []PolicySummary{tc.ours, tc.reserve, tc.binpack}}
			got := c.missed()
			if len(got) != len(tc.want) {
				t.Fatalf("not kept are %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tc.want[i]) {
					t.Errorf("not kept is %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}
