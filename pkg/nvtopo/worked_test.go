// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWorkedExamples holds the code to the numbers of docs/objective.md.
func TestWorkedExamples(t *testing.T) {
	t.Parallel()
	type worth struct {
		GPUs      []int
		Ring      []int
		Bandwidth int64
		Class     string
		NUMANodes int
		Residual  int64 // 10^-6 kB/s, left behind
		PairSum   int64
	}
	for name, tc := range map[string]struct {
		machine string
		used    []int
		best    []int
		want    []worth
	}{
		"S08": {"dgx1v", []int{1, 6}, []int{0, 3, 4, 7}, []worth{
			{[]int{0, 3, 4, 7}, []int{0, 3, 7, 4}, 25_000_000, "NV1", 2, 21_556_800_000_000, 199_000_000},
			{[]int{0, 2, 3, 4}, []int{0, 3, 2, 4}, 12_000_000, "SYS", 2, 49_950_000_000_000, 199_000_000},
			{[]int{0, 4, 5, 7}, []int{0, 4, 7, 5}, 12_000_000, "SYS", 2, 100_000_000_000_000, 174_000_000},
			{[]int{0, 2, 3, 5}, []int{0, 3, 2, 5}, 12_000_000, "SYS", 2, 99_900_000_000_000, 161_000_000},
		}},
		"S12": {"dgx1v", []int{4, 5, 6}, []int{0, 3}, []worth{
			{[]int{0, 3}, []int{0, 3}, 50_000_000, "NV2", 1, 107_959_500_000_000, 50_000_000},
			{[]int{1, 2}, []int{1, 2}, 50_000_000, "NV2", 1, 107_959_500_000_000, 50_000_000},
			{[]int{2, 3}, []int{2, 3}, 50_000_000, "NV2", 1, 58_067_600_000_000, 50_000_000},
			{[]int{0, 1}, []int{0, 1}, 25_000_000, "NV1", 1, 108_067_600_000_000, 25_000_000},
		}},
		"S06": {"hgx8", []int{4}, []int{5}, []worth{
			{[]int{5}, []int{5}, 0, "", 1, 4_147_680_000_000_000, 0},
			{[]int{6}, []int{6}, 0, "", 1, 4_145_868_750_000_000, 0},
			{[]int{0}, []int{0}, 0, "", 1, 3_986_647_500_000_000, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables := testTables(t, tc.machine)
			free := tables.Graph().Healthy() &^ MaskOf(tc.used...)
			best, _ := tables.Pick(free, free, len(tc.best), Constraint{})
			if diff := cmp.Diff(tc.best, best.Positions()); diff != "" {
				t.Errorf("the best set (-want +got):\n%s", diff)
			}
			for _, want := range tc.want {
				ch, _ := tables.Choose(free, MaskOf(want.GPUs...), len(want.GPUs), Constraint{})
				got := worth{ch.Set.Positions(), ch.Ring, ch.Bandwidth, ch.Class.String(), tables.NUMACount(ch.Set), ch.Residual, ch.PairSum}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v (-want +got):\n%s", want.GPUs, diff)
				}
			}
		})
	}
}
