// SPDX-License-Identifier: Apache-2.0

package devcluster

import "testing"

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		text, sets string
		fails      bool
		want       string
		wantWrong  bool
	}{
		"the first fault":            {"", "agent", true, "agent", false},
		"another one":                {"gpu-10,agent", "gpu-3", true, "agent,gpu-3,gpu-10", false},
		"one heals":                  {"agent,node", "node", false, "agent", false},
		"the last heals":             {"gpu-3", "gpu-3", false, "", false},
		"healing what is sound":      {"exporter", "gpu-0", false, "exporter", false},
		"a word that nobody knows":   {"", "driver", true, "", true},
		"a GPU without a number":     {"", "gpu-", true, "", true},
		"a GPU below zero":           {"", "gpu--1", true, "", true},
		"an annotation by hand":      {"fire", "agent", true, "", true},
		"an annotation with a blank": {"agent, node", "agent", true, "", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFaults(tc.text)
			if err == nil {
				err = f.Set(tc.sets, tc.fails)
			}
			switch {
			case tc.wantWrong != (err != nil):
				t.Errorf("error %v", err)
			case err == nil && f.String() != tc.want:
				t.Errorf("faults %q, want %q", f, tc.want)
			}
		})
	}
}
