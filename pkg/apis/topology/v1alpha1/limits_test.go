// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"runtime"
	"testing"
)

// TestDiscardedCPULists: lists of CPUs that are not kept cost nothing. It reads as many lists as
// one object may have.
func TestDiscardedCPULists(t *testing.T) {
	tests := map[string]struct {
		text func(i int) string
		want int // lists that are read
	}{
		"long ones, each another": {func(i int) string { return fmt.Sprintf("0-%d", 8191-i) }, 8},
		"long ones that cannot be read": {func(i int) string {
			return fmt.Sprintf("0-8191,0-8191,0-8191,0-%d,x", 8191-i)
		}, 0},
		"short ones": {func(i int) string { return fmt.Sprintf("%d-%d", i, i+3) }, 1000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var lists CPULists
			read := 0
			for i := range 1000 {
				if _, err := lists.Read(tc.text(i)); err == nil {
					read++
				}
			}
			runtime.ReadMemStats(&after)
			if read != tc.want {
				t.Errorf("%d lists are read, want %d", read, tc.want)
			}
			// What is kept takes half of one MiB.
			if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("reading them took %d MiB", used>>20)
			}
		})
	}
}
