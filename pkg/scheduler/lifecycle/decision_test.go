// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// TestBestNodeMemory: the best nodes are remembered.
func TestBestNodeMemory(t *testing.T) {
	c := &lifecycle.Cycle{}
	for _, r := range []lifecycle.Ranked{{Node: "c", Score: 70}, {Node: "a", Score: 90}, {Node: "d", Score: 60}, {Node: "b", Score: 70}, {Node: "e", Score: 80}} {
		c.Rank(r.Node, r.Score)
	}
	want := [lifecycle.Ranks]lifecycle.Ranked{{Node: "a", Score: 90}, {Node: "e", Score: 80}, {Node: "c", Score: 70}}
	if diff := cmp.Diff(want, c.Ranked); diff != "" || c.Scored != 5 {
		t.Errorf("%d scored, the best (-want,+got):\n%s", c.Scored, diff)
	}
}
