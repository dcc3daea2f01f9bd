// SPDX-License-Identifier: Apache-2.0

package visible

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShortUUIDs: UUIDs may be shortened.
func TestShortUUIDs(t *testing.T) {
	known := []Device{{ID: "GPU-aabb", Index: 0}, {ID: "GPU-aacc", Index: 1}, {ID: "GPU-dd", Index: 2}}
	for name, tc := range map[string]struct {
		name  string
		given []string
		want  []string
	}{
		"an index":                  {name: "1", want: []string{"GPU-aacc"}},
		"one":                       {name: "GPU-aab", want: []string{"GPU-aabb"}},
		"both":                      {name: "GPU-aa", want: []string{"GPU-aabb", "GPU-aacc"}},
		"the kind alone is no UUID": {name: "GPU-", want: []string{"GPU-"}},
		"given, not in the graph":   {name: "GPU-ee", given: []string{"GPU-eeff"}, want: []string{"GPU-eeff"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, certain := Resolve(tc.name, known, tc.given)
			if diff := cmp.Diff(tc.want, got); diff != "" || !certain {
				t.Errorf("certain: %v, devices (-want +got):\n%s", certain, diff)
			}
		})
	}
}
