// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// TestOtherReleases: other releases are noted.
func TestOtherReleases(t *testing.T) {
	tests := map[string]struct {
		level string // of node a's agent
		want  string
	}{
		"the same":                      {level: strconv.Itoa(release.Level)},
		"none: a release before levels": {want: "1 node agents are of release unknown (level 1)"},
		"the next":                      {level: strconv.Itoa(release.Level + 1), want: "one level apart"},
		"the one after":                 {level: strconv.Itoa(release.Level + 2), want: "not supported"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			for i := range c.Leases {
				if l := &c.Leases[i]; l.Name == nodelease.AgentPrefix+"a" {
					l.Annotations = map[string]string{release.LevelKey: tc.level}
					if tc.level == "" {
						l.Annotations = nil
					}
				}
			}
			r := Examine(c.World)
			if len(r.Violations) != 0 {
				t.Errorf("violations: %v", r.Violations)
			}
			if tc.want == "" && len(r.Notes) == 0 {
				return
			}
			if len(r.Notes) != 1 || r.Notes[0].Invariant != OtherRelease || !strings.Contains(r.Notes[0].String(), tc.want) {
				t.Errorf("notes %v, want one with %q", r.Notes, tc.want)
			}
		})
	}
}

// TestLaterReleaseAllocation: an allocation of a later release is no violation.
func TestLaterReleaseAllocation(t *testing.T) {
	c := newTestEnv(t)
	p := c.pod("p", "a", 0, 1)
	p.Annotations[allocation.Key] = strings.Replace(p.Annotations[allocation.Key], `"version":1`, `"version":2`, 1)
	r := Examine(c.World)
	if got := slugs(r.Violations); len(got) != 0 {
		t.Errorf("violations: %v", r.Violations)
	}
	if got := slugs(r.Notes); len(got) != 1 || got[0] != Unverified {
		t.Errorf("notes: %v, want one that it was not verified", r.Notes)
	}
}
