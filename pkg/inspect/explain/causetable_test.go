// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// ofPlans are the reasons of the scheduler that only its own process has: they pass, or name a gang's plan.
var ofPlans = []placement.Reason{placement.PodGone, placement.AttemptGoesOn, placement.PlanEnded, placement.PlanBroken, placement.PlannedElsewhere}

// TestCauseTable: each cause is there once, with a condition, and so is each reason of the scheduler for a
// node.
func TestCauseTable(t *testing.T) {
	seen := map[Cause]bool{}
	for _, r := range Causes() {
		if seen[r.Cause] || r.Condition == "" || r.Next == "" {
			t.Errorf("%s: condition %q, next step %q, there before: %t", r.Cause, r.Condition, r.Next, seen[r.Cause])
		}
		seen[r.Cause] = true
	}
	for r := placement.Fits + 1; r.Name() != "Unknown"; r++ {
		if !seen[causeOf(r)] && !slices.Contains(ofPlans, r) {
			t.Errorf("the reason %s is no cause", r.Name())
		}
	}
}
