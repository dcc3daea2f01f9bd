// SPDX-License-Identifier: Apache-2.0

package gangstate

import "testing"

// TestRoughly: the number of nodes in a reason has few values. A changed text is written on all members
// of the gang.
func TestRoughly(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := 1; n <= 5000; n++ {
		seen[roughly(n)] = true
	}
	if len(seen) > 24 {
		t.Errorf("1 to 5,000 nodes have %d texts: %v", len(seen), seen)
	}
	for n, want := range map[int]string{
		1: "1 node", 2: "2 nodes", 4: "more than 2 nodes", 5: "5 nodes", 9: "more than 5 nodes", 10: "10 nodes",
		19: "more than 10 nodes", 20: "20 nodes", 49: "more than 20 nodes", 4999: "more than 2000 nodes", 5000: "5000 nodes",
	} {
		if got := roughly(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
