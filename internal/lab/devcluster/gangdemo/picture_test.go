// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRackPicture: the picture has a line for each rack.
func TestRackPicture(t *testing.T) {
	gpus := owners{}
	for _, n := range Nodes() {
		gpus[n.Name] = []rune("........")
	}
	gpus["node-01"] = []rune("LLLL....")
	var b strings.Builder
	if err := draw(&b, Nodes(), gpus); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	want := []string{"  spine-0", "    rack-0  ........ LLLL.... ........ ........", "    rack-1  ........ ........ ........ ........"}
	if diff := cmp.Diff(want, lines[:3]); diff != "" {
		t.Errorf("the first lines (-want +got):\n%s", diff)
	}
	if len(lines) != spines*(1+racksPerSpine) {
		t.Errorf("%d lines, want %d:\n%s", len(lines), spines*(1+racksPerSpine), b.String())
	}
}

func TestJudge(t *testing.T) {
	a, b, c := place{"s0", "r0"}, place{"s0", "r1"}, place{"s1", "r2"}
	tests := map[string]struct {
		gang gang
		at   []place
		want string
	}{
		"as promised":         {gang{pods: 2, racks: 1, spines: 1}, []place{a, a}, ""},
		"a member is missing": {gang{pods: 2}, []place{a}, "1 of 2 members are bound"},
		"too many racks":      {gang{pods: 2, racks: 1}, []place{a, b}, "in 2 racks, promised were 1 at most"},
		"too many spines":     {gang{pods: 2, racks: 2, spines: 1}, []place{a, c}, "on 2 spines, promised were 1 at most"},
		"not spread":          {gang{pods: 3, apart: 3}, []place{a, a, b}, "in 2 racks, promised were 3 at least"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.gang.judge(tc.at); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
