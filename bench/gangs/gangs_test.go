// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// TestShortRun: a short run reports everything.
func TestShortRun(t *testing.T) {
	o, err := parse([]string{"-short", "-seeds", "2", "-out", t.TempDir()}, io.Discard, "")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := run(t.Context(), o, &b, io.Discard); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(o.out, "bench-gangs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Result Result }
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, c := range got.Result.Cells {
		cells = append(cells, c.Cluster+" "+c.String())
		for _, p := range c.Policies {
			if p.Gangs == 0 || len(p.Seeds) != 2 || p.Unfinished != 0 {
				t.Errorf("%s, %s: %d gangs, %d seeds, %d pods unfinished", c.String(), p.String(), p.Gangs, len(p.Seeds), p.Unfinished)
			}
			if p.Policy == sim.Ours && (p.LevelRegret != 0 || p.NotCarriedOut != 0) {
				t.Errorf("%s, %s: a regret of %v, %d plans not carried out", c.String(), p.String(), p.LevelRegret, p.NotCarriedOut)
			}
		}
	}
	want := []string{"lingjun frag 0.9", "lingjun frag 0.9, single-numa-node", "lingjun big 0.9", "large big 0.9", "large wide 0.9"}
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Errorf("cells (-want,+got):\n%s", diff)
	}
	for _, want := range []string{"Fewer or other jobs", "What the rules leave out", "Time of a plan", "| frag 0.9 ", "koordinator", "generated as Lingjun", "Bars: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestReplayWorkers: replays do not depend on the workers.
func TestReplayWorkers(t *testing.T) {
	cells := func(workers string) []CellSummary {
		o, err := parse([]string{"-short", "-seeds", "2", "-clusters", "lingjun", "-workers", workers}, io.Discard, "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := measure(t.Context(), o, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return r.Cells
	}
	if diff := cmp.Diff(cells("1"), cells("3")); diff != "" {
		t.Errorf("one worker and three (-one,+three):\n%s", diff)
	}
}

// TestTraceMixShares: traces have the shares of their mixes.
func TestTraceMixShares(t *testing.T) {
	for _, m := range append(mixes(), wide()) {
		jobs := m.jobs(200_000, 1)
		var gangs, all float64
		for _, j := range jobs {
			work := float64(j.GPUs * j.Pods)
			all += work
			if j.Pods > 1 {
				gangs += work
			}
			if j.DurationS > longestS || j.Pods > 1 && !slices.Contains(m.pods, j.Pods) {
				t.Fatalf("%s: job %+v", m.name, j)
			}
		}
		if got := gangs / all; math.Abs(got-m.share) > 0.03 {
			t.Errorf("%s: %.3f of the GPUs in gangs, want %.2f", m.name, got, m.share)
		}
		if !slices.Equal(jobs[:100], m.jobs(100, 1)) {
			t.Errorf("%s: the same seed gives other jobs", m.name)
		}
	}
}

// TestLingjunFabric: the generated fabric has Lingjun's shape.
func TestLingjunFabric(t *testing.T) {
	racks, spines := map[string]int{}, map[string]int{}
	hosts := likeLingjun()
	for _, h := range hosts {
		racks[h.rack]++
		spines[h.spine]++
	}
	sizes := map[int]int{}
	for _, n := range racks {
		sizes[n]++
	}
	want := map[int]int{8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}
	if diff := cmp.Diff(want, sizes); diff != "" || len(hosts) != 847 || len(spines) != 3 {
		t.Errorf("%d hosts, %d spines; racks by size (-want,+got):\n%s", len(hosts), len(spines), diff)
	}
}

func TestBars(t *testing.T) {
	policy := func(v Variant, rack, over, wait float64) PolicySummary {
		return PolicySummary{Variant: v, OneRack: rack, RacksOver: over, WaitS: wait, BestBand: 0.996}
	}
	theirs := policy(Variant{Policy: kueue}, 0.72, 1.1, 100)
	cases := map[string]struct {
		cell     Cell
		policies []PolicySummary
		want     []bool // kept, in order, but for the promises of 0
	}{
		"all kept": {
			Cell{Cluster: lingjunName, Mix: mixTrain, Load: 0.9},
			[]PolicySummary{policy(ours(0), 0.83, 1.03, 105), policy(ours(900), 0.93, 1, 200), theirs},
			[]bool{true, true, true, true},
		},
		"all missed": {
			Cell{Cluster: lingjunName, Mix: mixTrain, Load: 0.9},
			[]PolicySummary{policy(ours(0), 0.81, 1.04, 106), policy(ours(900), 0.92, 1, 200), theirs},
			[]bool{false, false, false, false},
		},
		"nobody waits": {
			Cell{Cluster: lingjunName, Mix: mixTrain, Load: 0.7},
			[]PolicySummary{policy(ours(0), 0.83, 1, 0), policy(Variant{Policy: kueue}, 0.72, 1, 0)},
			[]bool{true, true, true},
		},
		"only ours wait": {
			Cell{Cluster: lingjunName, Mix: mixTrain, Load: 0.7},
			[]PolicySummary{policy(ours(0), 0.83, 1, 1), policy(Variant{Policy: kueue}, 0.72, 1, 0)},
			[]bool{true, true, false},
		},
		"5000 nodes": {
			Cell{Cluster: largeName, Mix: mixBig, Load: 0.95},
			[]PolicySummary{policy(ours(0), 0.715, 1.02, 105), policy(ours(300), 0.765, 1, 200), theirs},
			[]bool{true, false, true, true},
		},
		"pods of a policy have promises of 0 only": {
			Cell{Cluster: lingjunName, Mix: mixTrain, Load: 0.9, PodPolicy: "single-numa-node"}, []PolicySummary{policy(ours(0), 0.5, 2, 1), theirs}, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []bool
			for _, b := range barsOf(&CellSummary{Cell: tc.cell, Policies: tc.policies}) {
				if b.Want != "0" {
					got = append(got, b.Kept)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kept (-want,+got):\n%s", diff)
			}
		})
	}
	lost := policy(ours(300), 1, 1, 1)
	lost.LevelRegret, lost.NotCarriedOut = 0.1, 2
	if got := missedOf(barsOf(&CellSummary{Cell: Cell{Cluster: lingjunName}, Policies: []PolicySummary{lost}})); got != 2 {
		t.Errorf("%d promises of 0 missed, want 2", got)
	}
	if got := missedOf(planBars([]PlanTime{{Pods: 64, P99Ms: 5.1}, {Pods: 128, P99Ms: 5.1}, {Pods: 1000, P99Ms: 51}})); got != 2 {
		t.Errorf("%d bars of plans missed, want 2", got)
	}
}

// TestFlagErrors: contradictory or unknown flags are refused.
func TestFlagErrors(t *testing.T) {
	for _, line := range []string{"-seeds 0", "-mixes all", "-loads high", "-loads 0", "-clusters none", "-jobs 0", "argument"} {
		if _, err := parse(strings.Fields(line), io.Discard, ""); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

// TestLingjunFile: the Lingjun file is read.
func TestLingjunFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(lingjunFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, lingjunFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ip,DSW,PSW,ASW\nc,G,P1,S1\na,G,P1,S2\nb,G,P2,S1\n")
	c, err := lingjun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.tree.Len() != 3 || len(c.tree.Domains(1)) != 2 || len(c.tree.Domains(2)) != 3 || c.nodes[0].Name != "c" {
		t.Errorf("%d nodes, %d spines, %d racks, first %s", c.tree.Len(), len(c.tree.Domains(1)), len(c.tree.Domains(2)), c.nodes[0].Name)
	}
	write("node,rack\na,b\n")
	if _, err := lingjun(dir); err == nil || !strings.Contains(err.Error(), lingjunFile) {
		t.Errorf("error %v, want one with the file", err)
	}
}
