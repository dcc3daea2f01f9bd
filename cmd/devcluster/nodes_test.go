// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

func TestNodeFlags(t *testing.T) {
	tests := map[string]struct {
		flags nodeFlags
		want  []string // name machine rack switch
		wrong string   // part of the error
	}{
		"machines and racks in order": {
			flags: nodeFlags{machines: []string{"dgx-h100=3", "l40s-8=1"}, racks: 2, switches: 2},
			want: []string{
				"dgx-h100-1 dgx-h100 rack-0 switch-0", "dgx-h100-2 dgx-h100 rack-0 switch-0",
				"dgx-h100-3 dgx-h100 rack-1 switch-1", "l40s-8-1 l40s-8 rack-1 switch-1",
			},
		},
		"no racks":                   {flags: nodeFlags{machines: []string{"l40s-8=1"}}, want: []string{"l40s-8-1 l40s-8  "}},
		"a machine nobody knows":     {flags: nodeFlags{machines: []string{"no-such=1"}}, wrong: "no-such"},
		"no number":                  {flags: nodeFlags{machines: []string{"l40s-8"}}, wrong: "MACHINE=COUNT"},
		"none of a machine":          {flags: nodeFlags{machines: []string{"l40s-8=0"}}, wrong: "MACHINE=COUNT"},
		"a machine twice":            {flags: nodeFlags{machines: []string{"l40s-8=1", "l40s-8=2"}}, wrong: "twice"},
		"too many nodes":             {flags: nodeFlags{machines: []string{"l40s-8=1001"}}, wrong: "more than 1000"},
		"more racks than nodes":      {flags: nodeFlags{machines: []string{"l40s-8=1"}, racks: 2}, wrong: "--racks 2"},
		"more switches than racks":   {flags: nodeFlags{machines: []string{"l40s-8=3"}, racks: 2, switches: 3}, wrong: "--switches 3"},
		"switches need racks":        {flags: nodeFlags{switches: 1}, wrong: "--switches 1"},
		"a negative number of racks": {flags: nodeFlags{racks: -1}, wrong: "--racks -1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			specs, err := tc.flags.specs()
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("error %v, want %q", err, tc.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range specs {
				got = append(got, s.Name+" "+s.Machine+" "+s.Labels[clustertopology.RackLabel]+" "+s.Labels[clustertopology.SwitchLabel])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
