// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"slices"
	"testing"
)

// TestScenarios holds the situations in which well-known pickers take a worse
// set than the objective allows.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machine string
		used    []int
		k       int
		want    [][]int
	}{
		"S01 three GPUs share a switch, the NVLink pair stays whole": {machine: "mix5", k: 3, want: [][]int{{2, 3, 4}}},
		"S03 a single GPU comes from the broken pair":                {machine: "pair8", used: []int{3}, k: 1, want: [][]int{{2}}},
		"S04 a pair comes from the broken NUMA node":                 {machine: "hgx8", used: []int{0}, k: 2, want: [][]int{{2, 3}}},
		"S06 a single GPU completes a broken PCIe pair":              {machine: "hgx8", used: []int{4}, k: 1, want: [][]int{{5}}},
		"S08 a ring over NVLink beats a greater sum":                 {machine: "dgx1v", used: []int{1, 6}, k: 4, want: [][]int{{0, 3, 4, 7}}},
		"S10 a double link beats a better remainder":                 {machine: "dgx1v", used: []int{0, 1, 2, 6}, k: 2, want: [][]int{{4, 7}}},
		"S12 the first pair leaves a double link for the second":     {machine: "dgx1v", used: []int{4, 5, 6}, k: 2, want: [][]int{{0, 3}, {1, 2}}},
		"S14 any double link on the empty machine": {
			machine: "dgx1v", k: 2,
			want: [][]int{{2, 3}, {6, 7}, {0, 3}, {1, 2}, {0, 4}, {1, 5}, {4, 7}, {5, 6}},
		},
		"S17 a pair leaves the quad whole":                       {machine: "quadpair6", k: 2, want: [][]int{{4, 5}}},
		"S19 the switch beats the near GPU whose NVLink is down": {machine: "hgx8-down3", used: []int{0, 1, 4, 5, 7}, k: 2, want: [][]int{{2, 6}}},
		"S20 four GPUs stay on one socket of two NUMA nodes":     {machine: "nps4x8", used: []int{0}, k: 4, want: [][]int{{4, 5, 6, 7}}},
		"S22 the bridged pair of the broken NUMA node":           {machine: "pair8", used: []int{0}, k: 2, want: [][]int{{2, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables := testTables(t, tc.machine)
			free := tables.Graph().Healthy() &^ MaskOf(tc.used...)
			got, ok := tables.Pick(free, free, tc.k, Constraint{})
			if !ok || !slices.ContainsFunc(tc.want, func(w []int) bool { return slices.Equal(w, got.Positions()) }) {
				t.Errorf("picked %v (%t), want one of %v", got.Positions(), ok, tc.want)
			}
		})
	}
}

// TestSecondPairLinks: the second pair keeps the double link. It plays S12 to its end: both pods
// get two links.
func TestSecondPairLinks(t *testing.T) {
	t.Parallel()
	tables := testTables(t, "dgx1v")
	free := tables.Graph().Healthy() &^ MaskOf(4, 5, 6)
	for pod := range 2 {
		ch, short := tables.Choose(free, free, 2, Constraint{})
		if short != ShortNone || ch.Class.String() != "NV2" {
			t.Fatalf("pod %d got %v over %s (short of %s), want NV2", pod, ch.Ring, ch.Class, short)
		}
		free &^= ch.Set
	}
}
