// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAGraphIsFreshByWhenItsRenewalWasSeen plays what a scheduler sees of one Lease of
// 120 s and asks at the end of each step whether it counts.
func TestAGraphIsFreshByWhenItsRenewalWasSeen(t *testing.T) {
	type step struct {
		after   time.Duration // since the step before
		renewed time.Duration // by the node's clock, since the start by ours
		silent  bool          // nothing is seen
		gone    bool          // the Lease is deleted
		want    bool
		back    bool // reported as having come back
	}
	const day = 24 * time.Hour
	tests := map[string]struct {
		freshness time.Duration
		steps     []step
	}{
		"a clock like ours": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
			{after: time.Second, renewed: 121 * time.Second, want: true, back: true},
		}},
		"a renewal from before the start": {steps: []step{
			{renewed: -100 * time.Second, want: true, back: true},
			{after: 21 * time.Second, silent: true},
		}},
		"silent for a day before the start": {steps: []step{{renewed: -day}}},
		"a clock an hour behind counts from the second renewal": {steps: []step{
			{renewed: -time.Hour},
			{after: 30 * time.Second, renewed: -time.Hour + 30*time.Second, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
		"a clock an hour ahead does not count for an hour": {steps: []step{
			{renewed: time.Hour, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
		"a clock that is set back": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 30 * time.Second, renewed: -day, want: true},
			{after: 100 * time.Second, silent: true, want: true},
			{after: 20 * time.Second, silent: true},
		}},
		"listed again without a renewal": {steps: []step{
			{renewed: time.Hour, want: true, back: true},
			{after: 110 * time.Second, renewed: time.Hour, want: true},
			{after: 10 * time.Second, renewed: time.Hour},
		}},
		"deleted and made again": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: time.Second, gone: true},
			{after: time.Second, renewed: -200 * time.Second},
			{after: time.Second, renewed: 0, want: true, back: true},
		}},
		"a deadline of the operator's": {freshness: 10 * time.Minute, steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 599 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			table, now := newLeaseTable("", tc.freshness), start
			l := table.time(ExporterLeasePrefix + "n")
			for i, st := range tc.steps {
				now = now.Add(st.after)
				back := false
				switch {
				case st.gone:
					table.drop(ExporterLeasePrefix + "n")
				case !st.silent:
					back = table.set(lease(ExporterLeasePrefix+"n", start.Add(st.renewed), 2*time.Minute), now)
				}
				if got := l.fresh(now); got != st.want || back != st.back {
					t.Errorf("step %d: fresh %t, back %t, want %t, %t", i, got, back, st.want, st.back)
				}
			}
		})
	}
}

func TestTheDeadlineForGraphsLeavesAgentsAlone(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table := newLeaseTable("", time.Hour)
	table.set(lease(AgentLeasePrefix+"n", now, 2*time.Minute), now)
	if table.time(AgentLeasePrefix + "n").fresh(now.Add(2 * time.Minute)) {
		t.Error("the agent's Lease counts for longer than it says")
	}
}

// TestTheLeaseOfAnEarlierNodesAgentDoesNotCount: a Node was made anew under the name,
// and the agent of the earlier one still renews its Lease, or did so a moment ago.
func TestTheLeaseOfAnEarlierNodesAgentDoesNotCount(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	gone := gpuPod("gone", 8)
	r.record(t, gone.UID, 0, 1, 2, 3, 4, 5, 6, 7)
	careful := demandOf(t, gpuPod("careful", 1))
	careful.Unenforced = RefuseUnenforced
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
		renewal := lease(AgentLeasePrefix+"n", r.clock.now, 2*time.Minute)
		if step.owner != "" {
			renewal.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: step.owner}}
		}
		if back := r.leases.set(renewal, r.clock.now); back != step.back {
			t.Errorf("%s: others woken %t, want %t", step.name, back, step.back)
		}
		if got := r.Enforced("n"); got != step.want {
			t.Errorf("%s: enforced %t, want %t", step.name, got, step.want)
		}
		// What the agent says of pods that are gone, and for the nodes it serves, goes with it.
		want := map[bool]Reason{true: FewGPUs, false: NotEnforced}[step.want]
		if v := r.Judge(careful, info, l); v.Reason != want {
			t.Errorf("%s: a pod that wants an agent: %q, want %q", step.name, v.Reason, want)
		}
		want = map[bool]Reason{true: FewGPUs, false: Fits}[step.want]
		if v := r.Judge(demandOf(t, gpuPod("p", 1)), info, l); v.Reason != want {
			t.Errorf("%s: another pod: %q, want %q", step.name, v.Reason, want)
		}
	}
}
