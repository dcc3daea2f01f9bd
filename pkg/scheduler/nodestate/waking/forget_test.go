// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestForget has nodes come and go while pods wait and while none do.
func TestForget(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"a pod waits": true, "no pod waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := schedtest.Pod("p").Scheduler("ours").GPUs(8).Obj()
			k := New(clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), &fakeCluster{pods: map[types.UID]*v1.Pod{pod.UID: pod}})
			if waits {
				k.Add(refused(pod, 0))
			}
			stays := &Node{}
			stays.Init(&fakeNode{node: schedtest.Node("stays").Obj(), graph: placement.NoGraph})
			k.Changed(stays)
			for i := range 1000 {
				n := &Node{}
				n.Init(&fakeNode{node: schedtest.Node(fmt.Sprint("node-", i)).Obj(), graph: placement.NoGraph})
				k.Changed(n)
				if i%2 == 0 {
					k.Round() // otherwise it is forgotten before the waker has seen it
				}
				k.Forget(n)
				k.Changed(n) // by a caller that found it before
				k.Round()
				if got := len(k.nodes) + len(k.changed); got != 1 {
					t.Fatalf("after node %d went, %d nodes are kept, want the one that stays", i, got)
				}
			}
		})
	}
}
