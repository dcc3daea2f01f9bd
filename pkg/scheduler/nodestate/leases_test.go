// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestEarlierNodeAgentLease: the Lease of an earlier node's agent is not valid. A Node was made again
// under the name, and the agent of the earlier one still renews its Lease, or did so a moment ago.
func TestEarlierNodeAgentLease(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	gone := schedtest.Pod("gone").GPUs(8).Obj()
	r.record(t, gone.UID, 0, 1, 2, 3, 4, 5, 6, 7)
	careful := demandOf(t, schedtest.Pod("careful").GPUs(1).Obj())
	careful.Unenforced = placement.RefuseUnenforced
	info, l := r.view(t)
	for _, step := range []struct {
		name  string
		owner types.UID
		want  bool
		back  bool
	}{
		{"an earlier release's Lease names no owner", "", true, false},
		{"this node's agent", r.node.UID, true, true},
		{"the agent of a node of before", "earlier", false, true},
		{"the same again", "earlier", false, false},
		{"this node's agent is back", r.node.UID, true, true},
	} {
		renewal := lease(nodelease.AgentPrefix+"n", r.clock.now, 2*time.Minute)
		if step.owner != "" {
			renewal.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: step.owner}}
		}
		if back := r.PodDevices.leases.Set(renewal, r.clock.now); back != step.back {
			t.Errorf("%s: others woken %t, want %t", step.name, back, step.back)
		}
		if got := r.PodDevices.Enforced("n"); got != step.want {
			t.Errorf("%s: enforced %t, want %t", step.name, got, step.want)
		}
		// Its records of pods that are gone become invalid as well.
		want := map[bool]placement.Reason{true: placement.FewGPUs, false: placement.NotEnforced}[step.want]
		if v := r.Nodes.Judge(careful, info, l); v.Reason != want {
			t.Errorf("%s: a pod that wants an agent: %q, want %q", step.name, v.Reason, want)
		}
		want = map[bool]placement.Reason{true: placement.FewGPUs, false: placement.Fits}[step.want]
		if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(1).Obj()), info, l); v.Reason != want {
			t.Errorf("%s: another pod: %q, want %q", step.name, v.Reason, want)
		}
	}
}
