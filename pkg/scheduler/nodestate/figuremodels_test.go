// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestModelLabels: nodes with made-up model names cause only a bounded number of series.
func TestModelLabels(t *testing.T) {
	tests := map[string]struct {
		madeUp     int    // models of one GPU beside one of 100
		also       string // another made-up model
		wantModels int
		wantOthers *gpuFigures
	}{
		"as many as are named": {madeUp: maxModels - 1, wantModels: maxModels},
		"one more": {
			madeUp: maxModels, wantModels: maxModels, wantOthers: &gpuFigures{used: 1, free: 1},
		},
		"thousands": {
			madeUp: 5000, wantModels: maxModels, wantOthers: &gpuFigures{used: 1, free: 5000 - maxModels + 1},
		},
		"one that has the name of the others": {
			madeUp: 5000, also: otherModels, wantModels: maxModels, wantOthers: &gpuFigures{used: 1, free: 5000 - maxModels + 2},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := &figures{gpus: map[string]*gpuFigures{"real": {used: 100}}, groups: map[groupKey]*groupFigures{{"real", 2, "NV18"}: {free: 7}}}
			names := []string{"z"} // the last by name, so it is the first without a series of its own
			for i := range tc.madeUp - 1 {
				names = append(names, fmt.Sprintf("a%04d", i))
			}
			if tc.also != "" {
				names = append(names, tc.also)
			}
			groups := 7
			for _, model := range names {
				f.gpus[model] = &gpuFigures{free: 1}
				f.groups[groupKey{model, 2, "NV18"}] = &groupFigures{free: 1, capacity: 1, freeGPUs: 2}
				groups++
			}
			f.gpus["z"] = &gpuFigures{used: 1}
			f.boundModels()
			if len(f.gpus) != tc.wantModels || f.gpus["real"] == nil {
				t.Errorf("%d models, want %d and the one that most GPUs have", len(f.gpus), tc.wantModels)
			}
			if diff := cmp.Diff(tc.wantOthers, f.gpus[otherModels], cmp.AllowUnexported(gpuFigures{})); diff != "" {
				t.Errorf("others (-want,+got):\n%s", diff)
			}
			free := 0
			for key, g := range f.groups {
				free += g.free
				if f.gpus[key.model] == nil {
					t.Errorf("groups of the model %q, of which no GPUs are named", key.model)
				}
			}
			if free != groups {
				t.Errorf("%d free groups, want %d", free, groups)
			}
		})
	}
}
