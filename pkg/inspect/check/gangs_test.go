// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const rackLabel = "topology.kubernetes.io/rack"

// newGang has four members of two GPUs each, bound on node a, of the PodGroup default/g with
// a minimum of four. Node a is in rack r0, b in r1.
func newGang(tb testing.TB) *testEnv {
	tb.Helper()
	c := newTestEnv(tb)
	c.Nodes[0].Labels = map[string]string{rackLabel: "r0"}
	c.Nodes[1].Labels = map[string]string{rackLabel: "r1"}
	group := schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Name: "g", Namespace: "default", UID: "uid-g", CreationTimestamp: *at(-time.Minute), Annotations: map[string]string{},
	}}
	group.Spec.MinMember = 4
	c.PodGroups = []schedulingv1alpha1.PodGroup{group}
	c.state(1, true)
	for i := range 4 {
		c.member(i, "a", 2*i)
	}
	return c
}

// member adds the member of a rank with two GPUs of a node.
func (e *testEnv) member(rank int, node string, first int) *v1.Pod {
	p := e.pod(fmt.Sprint("p-", rank), node, first, first+1)
	p.Labels = map[string]string{schedulingv1alpha1.PodGroupLabel: "g"}
	p.Annotations[gangrequest.RankKey] = gangrequest.FormatRank(rank)
	p.CreationTimestamp = *at(-30 * time.Second)
	return p
}

// waits takes a member's node away.
func (e *testEnv) waits(rank int) *v1.Pod {
	p := &e.Pods[rank]
	p.Spec.NodeName, p.Annotations, p.Status = "", nil, v1.PodStatus{Phase: v1.PodPending}
	return p
}

func (e *testEnv) state(attempt int64, whole bool) {
	e.PodGroups[0].Annotations[gangrequest.StateKey] = gangrequest.State{Attempt: attempt, Whole: whole}.Encode()
}

func (e *testEnv) require(level string) {
	e.PodGroups[0].Annotations[gangrequest.RequiredKey] = level
}

// annotated makes the gang one of annotations.
func (e *testEnv) annotated() {
	e.PodGroups = nil
	for i := range e.Pods {
		p := &e.Pods[i]
		p.Labels = nil
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[gangrequest.GangKey], p.Annotations[gangrequest.GangSizeKey] = "g", "4"
	}
}

func TestGangs(t *testing.T) {
	// scattered has the last member on node b, in another rack.
	scattered := func(c *testEnv) {
		c.require("rack")
		c.Pods = c.Pods[:3]
		c.member(3, "b", 0)
	}
	changed := func(o *metav1.ObjectMeta, field string, d time.Duration) {
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: at(d), FieldsV1: fields(field)})
	}
	partly := func(c *testEnv) { c.state(1, false); c.waits(3) }
	tests := map[string]struct {
		change                              func(*testEnv)
		wantViolations, wantPend, wantNotes []string
		wantGangs                           int
		wantText                            string // in some message
	}{
		"a whole gang": {wantGangs: 1},
		"a gang of which some never followed": {
			change: partly, wantPend: []string{GangPartlyBound}, wantGangs: 1,
			wantText: "3 of 4 members are bound, the first since 2026-11-21T12:00:01Z, and 1 wait: all or none should be",
		},
		"a gang that is being bound": {
			change: func(c *testEnv) { partly(c); c.Now = chosen.Add(2 * time.Minute) }, wantGangs: 1,
		},
		"the scheduler gives it less time": {
			change: func(c *testEnv) {
				partly(c)
				c.Now, c.ScheduleTimeout = chosen.Add(2*time.Minute), new(time.Minute)
			},
			wantPend: []string{GangPartlyBound}, wantGangs: 1,
		},
		"the scheduler lets it be for ever": {
			change: func(c *testEnv) { partly(c); c.ScheduleTimeout = new(time.Duration(0)) }, wantGangs: 1,
		},
		"how long members wait for each other is another time": {
			change: func(c *testEnv) {
				partly(c)
				c.Now = chosen.Add(2 * time.Minute)
				c.PodGroups[0].Spec.ScheduleTimeoutSeconds = new(int32(60))
			},
			wantGangs: 1,
		},
		"a member that takes a dead one's place": {
			change: func(c *testEnv) { partly(c); c.Pods[3].CreationTimestamp = *at(time.Minute) }, wantGangs: 1,
		},
		"a gang that was whole may miss a member": {change: func(c *testEnv) { partly(c); c.state(1, true) }, wantGangs: 1},
		"a state that cannot be read allows nothing": {
			change: func(c *testEnv) { partly(c); c.PodGroups[0].Annotations[gangrequest.StateKey] = "x" }, wantGangs: 1,
		},
		"a member that ended is not missed": {
			change: func(c *testEnv) { c.state(1, false); c.Pods[3].Status.Phase = v1.PodSucceeded }, wantGangs: 1,
		},
		"an extra beside a member that ended": {
			change: func(c *testEnv) {
				c.state(1, false)
				c.Pods[3].Status.Phase = v1.PodSucceeded
				c.member(4, "a", 0)
				c.waits(4).Labels = c.Pods[0].Labels
			},
			wantGangs: 1,
		},
		"an extra that waits": {
			change: func(c *testEnv) { partly(c); c.PodGroups[0].Spec.MinMember = 3 }, wantGangs: 1,
		},
		"members that nobody has made yet": {
			change: func(c *testEnv) { c.state(1, false); c.Pods = c.Pods[:3] }, wantGangs: 1,
		},
		"a gang of annotations of which some never followed": {
			change: func(c *testEnv) { c.waits(3); c.annotated() }, wantPend: []string{GangPartlyBound}, wantGangs: 1,
		},
		"a gang of annotations that was whole": {
			change: func(c *testEnv) {
				c.waits(3)
				c.annotated()
				c.Pods[0].Annotations[gangrequest.PlacementKey] = "{}"
			},
			wantGangs: 1,
		},
		"a gang that no plugin of ours placed": {
			change: func(c *testEnv) {
				partly(c)
				c.PodGroups[0].Annotations = nil
				for i := range c.Pods {
					delete(c.Pods[i].Annotations, gangrequest.RankKey)
				}
			},
		},
		"a gang of another scheduler": {
			change: func(c *testEnv) { partly(c); c.Pods[3].Spec.SchedulerName = "other" },
		},
		"a gang that waits": {
			change: func(c *testEnv) {
				for i := range c.Pods {
					c.waits(i)
				}
			},
		},
		"two members of one rank": {
			change:         func(c *testEnv) { c.Pods[2].Annotations[gangrequest.RankKey] = "1" },
			wantViolations: []string{GangRankShared}, wantGangs: 1, wantText: "both have the rank 1",
		},
		"the rank of a member that is being deleted": {
			change: func(c *testEnv) {
				c.Pods[2].Annotations[gangrequest.RankKey] = "1"
				c.Pods[1].DeletionTimestamp = at(time.Minute)
			},
			wantGangs: 1,
		},
		"members in one domain of the required level": {change: func(c *testEnv) { c.require("rack") }, wantGangs: 1},
		"members in several": {
			change: scattered, wantViolations: []string{GangScattered}, wantGangs: 1, wantText: "the members must be in one rack, and are in r0, r1",
		},
		"a level named by its label": {
			change: func(c *testEnv) { scattered(c); c.require(rackLabel) }, wantViolations: []string{GangScattered}, wantGangs: 1,
		},
		"the level of nodes": {
			change: func(c *testEnv) { scattered(c); c.require("node") }, wantViolations: []string{GangScattered}, wantGangs: 1,
		},
		"the whole cluster": {change: func(c *testEnv) { scattered(c); c.require("cluster") }, wantGangs: 1},
		"a level of the ClusterTopology": {
			change: func(c *testEnv) {
				scattered(c)
				c.require("leaf")
				c.ClusterTopology = &v1alpha1.ClusterTopology{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterTopologyName}}
				c.ClusterTopology.Spec.Levels = []v1alpha1.FabricLevel{{Name: "leaf", NodeLabel: rackLabel}}
			},
			wantViolations: []string{GangScattered}, wantGangs: 1, wantText: "in one leaf",
		},
		"a level that the fabric does not have": {
			change: func(c *testEnv) { scattered(c); c.require("block") }, wantNotes: []string{Unverified}, wantGangs: 1, wantText: `no level "block"`,
		},
		"labels that changed after the choice": {
			change:    func(c *testEnv) { scattered(c); changed(&c.Nodes[1].ObjectMeta, "f:labels", time.Minute) },
			wantNotes: []string{DegradedSince}, wantGangs: 1, wantText: "the labels of node b may have changed at",
		},
		"labels that changed long before": {
			change:         func(c *testEnv) { scattered(c); changed(&c.Nodes[1].ObjectMeta, "f:labels", -time.Minute) },
			wantViolations: []string{GangScattered}, wantGangs: 1,
		},
		"labels of a node that was made just before": {
			change: func(c *testEnv) {
				scattered(c)
				c.Nodes[1].CreationTimestamp = *at(-time.Second)
				changed(&c.Nodes[1].ObjectMeta, "f:labels", -time.Second)
			},
			wantViolations: []string{GangScattered}, wantGangs: 1,
		},
		"a node that was made anew since": {
			change:    func(c *testEnv) { scattered(c); c.Nodes[1].CreationTimestamp = *at(time.Minute) },
			wantNotes: []string{DegradedSince}, wantGangs: 1, wantText: "node b was made anew at",
		},
		"a label that is gone": {
			change: func(c *testEnv) { scattered(c); c.Nodes[1].Labels = nil }, wantNotes: []string{DegradedSince}, wantGangs: 1,
			wantText: "node b has no label of that level",
		},
		"a level that was required later": {
			change: func(c *testEnv) {
				scattered(c)
				changed(&c.PodGroups[0].ObjectMeta, "f:"+gangrequest.RequiredKey, time.Minute)
			},
			wantNotes: []string{DegradedSince}, wantGangs: 1, wantText: "the PodGroup's nvtopo.dev/required-topology changed at",
		},
		"a node that is gone": {
			change: func(c *testEnv) {
				scattered(c)
				c.Nodes = c.Nodes[:1]
				c.Topologies = c.Topologies[:1]
			},
			wantNotes: []string{Unverified}, wantGangs: 1, // of the allocation
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newGang(t)
			if tc.change != nil {
				tc.change(c)
			}
			r := Examine(c.World)
			for what, pair := range map[string][2][]string{
				"violations": {tc.wantViolations, slugs(r.Violations)}, "pending": {tc.wantPend, slugs(r.Pending)}, "notes": {tc.wantNotes, slugs(r.Notes)},
			} {
				if diff := cmp.Diff(append([]string{}, pair[0]...), pair[1]); diff != "" {
					t.Errorf("%s (-want,+got)\n%s", what, diff)
				}
			}
			if r.Checked.Gangs != tc.wantGangs {
				t.Errorf("%d gangs, want %d", r.Checked.Gangs, tc.wantGangs)
			}
			text := fmt.Sprint(r.Violations, r.Pending, r.Notes)
			if !strings.Contains(text, tc.wantText) {
				t.Errorf("%s\nhas no %q", text, tc.wantText)
			}
		})
	}
}

// TestPartlyBoundGang: a partly bound gang becomes a violation when it lasts: it is pending for the
// grace time.
func TestPartlyBoundGang(t *testing.T) {
	c := newGang(t)
	c.state(1, false)
	c.waits(3)
	k := NewChecker(time.Minute)
	if r := k.Examine(c.World); len(r.Violations) != 0 || len(r.Pending) != 1 {
		t.Fatalf("%+v", r)
	}
	c.Now = c.Now.Add(2 * time.Minute)
	r := k.Examine(c.World)
	if diff := cmp.Diff([]string{GangPartlyBound}, slugs(r.Violations)); diff != "" {
		t.Fatalf("(-want,+got)\n%s", diff)
	}
	if got, want := r.Violations[0].Objects[0], (Object{Kind: "PodGroup", Namespace: "default", Name: "g", UID: types.UID("uid-g")}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestGangFiles: gangs are read from files.
func TestGangFiles(t *testing.T) {
	var w World
	err := w.Add([]byte(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g, namespace: default}
spec: {minMember: 4}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: v, namespace: default}
spec: {minMember: many}
---
apiVersion: topology.nvtopo.dev/v1alpha1
kind: ClusterTopology
metadata: {name: default}
spec: {levels: [{name: leaf, nodeLabel: example.com/leaf}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(w.PodGroups) != 1 || w.PodGroups[0].Spec.MinMember != 4 {
		t.Errorf("PodGroups %+v", w.PodGroups)
	}
	if ct := w.ClusterTopology; ct == nil || len(ct.Spec.Levels) != 1 || ct.Spec.Levels[0].Name != "leaf" {
		t.Errorf("ClusterTopology %+v", ct)
	}
}
