// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// entriesOf makes n entries of pods in order, each with one list of devices and CPUs.
func entriesOf(n int, gpus func(i int) []string, cpus string) []entry {
	out := make([]entry, n)
	for i := range out {
		out[i].Allocation = v1alpha1.Allocation{PodUID: types.UID(fmt.Sprintf("%04d", i)), Container: "c", Resource: v1alpha1.DefaultResource, GPUs: gpus(i), CPUs: cpus}
	}
	return out
}

// TestWhatIsPublishedOfALongRecord: no more than the schema takes, of each device that a
// container has at least one entry, and the number of what is left out.
func TestWhatIsPublishedOfALongRecord(t *testing.T) {
	shared := func(i int) []string { return []string{fmt.Sprintf("GPU-%d", i/20)} }
	many := func(n int) func(int) []string {
		return func(int) []string {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("GPU-%02d", i)
			}
			return ids
		}
	}
	const half = v1alpha1.MaxAllocatedCPUs / 2
	tests := map[string]struct {
		entries                              []entry
		want, wantGPUs, wantLists, wantDrops int
	}{
		"as many containers as there may be":  {entriesOf(128, shared, ""), 128, 7, 0, 0},
		"more containers":                     {entriesOf(200, shared, ""), 128, 10, 0, 72},
		"as many devices":                     {entriesOf(8, many(64), ""), 8, 64, 0, 0},
		"more devices of one container":       {entriesOf(1, many(65), ""), 1, 64, 0, 1},
		"more devices of all":                 {entriesOf(10, many(64), ""), 10, 64, 0, 128},
		"CPUs as long as they may be":         {entriesOf(2, shared, strings.Repeat("1", half)), 2, 1, 2, 0},
		"longer ones":                         {entriesOf(3, shared, strings.Repeat("1", half)), 3, 1, 2, 1},
		"a device with too long a name":       {entriesOf(1, func(int) []string { return []string{strings.Repeat("x", 97)} }, ""), 1, 0, 0, 1},
		"a device that only the last one has": {entriesOf(200, func(i int) []string { return []string{fmt.Sprintf("GPU-%d", i/199)} }, ""), 128, 2, 0, 72},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, dropped := publishable(tc.entries)
			gpus, lists := map[string]bool{}, 0
			for i, a := range list {
				if i > 0 && list[i-1].PodUID >= a.PodUID {
					t.Errorf("entry %d is out of order", i)
				}
				for _, id := range a.GPUs {
					gpus[id] = true
				}
				if a.CPUs != "" {
					lists++
				}
			}
			if len(list) != tc.want || len(gpus) != tc.wantGPUs || lists != tc.wantLists || dropped != tc.wantDrops {
				t.Errorf("%d entries of %d GPUs with %d lists of CPUs, %d left out, want %d of %d with %d and %d",
					len(list), len(gpus), lists, dropped, tc.want, tc.wantGPUs, tc.wantLists, tc.wantDrops)
			}
		})
	}
}
