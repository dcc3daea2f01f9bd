// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// TestGangsElsewhere: a gang avoids a node whose kubelet refuses pods if other nodes have room for it, and
// uses it if they have not.
func TestGangsElsewhere(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		members int
		want    []string
	}{
		"others have room":       {members: 2, want: []string{"node-0-1", "node-0-2"}},
		"others have too little": {members: 3, want: []string{"node-0-0", "node-0-1", "node-0-2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, 3)
			for i := range refusals.Enough {
				p := gpuPod(fmt.Sprint("refused-", i), 8).Node("node-0-0").Phase(v1.PodFailed).Obj()
				p.Status.Reason = "OutOf" + gpuResource
				r.state.Refusals.Sent(p.UID, "node-0-0")
				r.state.Refusals.See(p)
			}
			pods := r.gang("g", tc.members, 8, nil)
			r.known(pods[0])
			var got []string
			for _, pod := range pods {
				c := r.cycle(pod)
				if !c.status.IsWait() {
					t.Fatalf("pod %s: %v, want a place", pod.Name, c.status)
				}
				got = append(got, c.node)
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("its members go to %v, want %v", got, tc.want)
			}
		})
	}
}
