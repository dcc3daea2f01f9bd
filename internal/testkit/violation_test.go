// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// noted is a test that records its errors.
type noted struct {
	testing.TB
	errors []string
}

func (n *noted) Helper() {}

func (n *noted) Errorf(format string, args ...any) {
	n.errors = append(n.errors, fmt.Sprintf(format, args...))
}

func TestViolation(t *testing.T) {
	n := &noted{TB: t}
	Violation(n, "GPU %d has two owners", 3)
	Violation(n, "100%% of the quota")
	want := []string{"VIOLATION: GPU 3 has two owners", "VIOLATION: 100% of the quota"}
	if diff := cmp.Diff(want, n.errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}
