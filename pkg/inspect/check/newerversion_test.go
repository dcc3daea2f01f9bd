// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestNewerAllocation: an allocation of a later version is no violation.
func TestNewerAllocation(t *testing.T) {
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
