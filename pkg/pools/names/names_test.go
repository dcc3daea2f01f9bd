// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"
)

func TestPriorityClass(t *testing.T) {
	tests := map[string]struct {
		priority  int32
		role      string
		wantName  string
		wantValue int32
	}{
		"a base job":                       {priority: 100, role: RoleBase, wantName: "nvtopo-p100", wantValue: 100},
		"a base job below nought":          {priority: -5, role: RoleBase, wantName: "nvtopo-n5", wantValue: -5},
		"an extra goes before every job":   {priority: 1000, role: RoleExtra, wantName: "nvtopo-extra-p1000", wantValue: -999_000},
		"an extra of a job below the rest": {priority: -1000, role: RoleExtra, wantName: "nvtopo-extra-n1000", wantValue: -1_001_000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gotName, gotValue := PriorityClass(tc.priority, tc.role)
			if gotName != tc.wantName || gotValue != tc.wantValue {
				t.Errorf("got %s %d, want %s %d", gotName, gotValue, tc.wantName, tc.wantValue)
			}
		})
	}
}

func TestQueueNames(t *testing.T) {
	for got, want := range map[string]string{
		ClusterQueue("pool", "team-a", ""):    "pool.team-a",
		ClusterQueue("pool", "", "low"):       "pool.low",
		ClusterQueue("pool", "team-a", "low"): "pool.team-a.low",
		LocalQueue("pool", ""):                "pool",
		LocalQueue("pool", "low"):             "pool.low",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestOwner(t *testing.T) {
	for name, tc := range map[string]struct{ kind, owner, want string }{
		"a job":                         {"Job", "sweep-7", "Job/sweep-7"},
		"a formula in a spreadsheet":    {"=cmd", "x\n1", "cmd/x1"},
		"nothing that a record takes":   {"=", "\u00e9", ""},
		"a name of 300 letters is cut":  {"Job", strings.Repeat("a", 300), "Job/" + strings.Repeat("a", 249)},
		"none that ends in a separator": {"Job", "a" + strings.Repeat("-", 300) + "b", "Job/a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Owner(tc.kind, tc.owner); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
