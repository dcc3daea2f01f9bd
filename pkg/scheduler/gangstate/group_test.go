// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"testing"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestSameGroup: only changed requests of a PodGroup cause its gang to be planned again. Before, each
// write did, the scheduler's own too.
func TestSameGroup(t *testing.T) {
	t.Parallel()
	group := func(minimum int32, notes map[string]string, running int32) *schedulingv1alpha1.PodGroup {
		return &schedulingv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: notes},
			Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minimum},
			Status:     schedulingv1alpha1.PodGroupStatus{Running: running},
		}
	}
	wish := map[string]string{gangrequest.RequiredKey: "rack"}
	tests := map[string]struct {
		before, after *schedulingv1alpha1.PodGroup
		want          bool
	}{
		"a new one":                          {nil, group(2, nil, 0), false},
		"its status":                         {group(2, nil, 0), group(2, nil, 2), true},
		"what the scheduler writes on it":    {group(2, nil, 0), group(2, map[string]string{gangrequest.StateKey: "x"}, 0), true},
		"another minimum":                    {group(2, nil, 0), group(3, nil, 0), false},
		"a wish":                             {group(2, nil, 0), group(2, wish, 0), false},
		"one that is deleted and made again": {group(2, nil, 0), &schedulingv1alpha1.PodGroup{Spec: schedulingv1alpha1.PodGroupSpec{MinMember: 2}}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameGroup(tc.before, tc.after); got != tc.want {
				t.Errorf("same: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestEditWhileCollecting: the places held for a gang that waits for its last member, or for its victims
// to end, are given up when the requests of its PodGroup or a member change, and kept after any other
// write.
func TestEditWhileCollecting(t *testing.T) {
	t.Parallel()
	edit := func(change func(*schedulingv1alpha1.PodGroup)) func(*Gangs, []*v1.Pod) {
		return func(g *Gangs, _ []*v1.Pod) {
			group := testGroup(2, "")
			change(group)
			g.SetGroup(group)
		}
	}
	annotate := func(key, value string) func(*Gangs, []*v1.Pod) {
		return func(g *Gangs, pods []*v1.Pod) {
			pod := pods[1].DeepCopy()
			pod.Annotations = map[string]string{key: value}
			g.SetPod(pod)
		}
	}
	tests := map[string]struct {
		edit func(*Gangs, []*v1.Pod)
		want bool // the places are given up
	}{
		"a greater minimum":            {edit(func(g *schedulingv1alpha1.PodGroup) { g.Spec.MinMember = 4 }), true},
		"a level":                      {edit(func(g *schedulingv1alpha1.PodGroup) { g.Annotations[gangrequest.RequiredKey] = "rack" }), true},
		"a size of message":            {edit(func(g *schedulingv1alpha1.PodGroup) { g.Annotations[gangrequest.MessageSizeKey] = "1M" }), true},
		"a deleted PodGroup":           {func(g *Gangs, _ []*v1.Pod) { g.DeleteGroup(testGroup(2, "")) }, true},
		"its status":                   {edit(func(g *schedulingv1alpha1.PodGroup) { g.Status.Running = 1 }), false},
		"an annotation of others":      {edit(func(g *schedulingv1alpha1.PodGroup) { g.Annotations["example.com/note"] = "x" }), false},
		"a least link of a member":     {annotate("nvtopo.dev/min-link", "NVLINK"), true},
		"a member's note of others":    {annotate("example.com/note", "x"), false},
		"a member's rank":              {annotate(gangrequest.RankKey, "1"), false},
		"a model promised to a member": {annotate(podrequest.PromisedModelKey, "NVIDIA-H200"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &releaser{}
			g, pods := twoOfAGroup(r)
			turn, _ := g.Begin(pods[0])
			if turn.Why != "" || !g.Hold(&turn, pods[0], nil) {
				t.Fatalf("the gang is not held: %q", turn.Why)
			}
			tc.edit(g, pods)
			if got := !g.queue.byPod[pods[0].UID].attempt.collects(); got != tc.want || got != slices.Contains(r.released, pods[1].UID) {
				t.Errorf("given up: %t, want %t; places that are given back: %v", got, tc.want, r.released)
			}
		})
		t.Run(name+", while its victims leave", func(t *testing.T) {
			t.Parallel()
			r := &releaser{}
			g, pods := twoOfAGroup(r)
			turn, _ := g.Begin(pods[0])
			claim := &Claim{Places: []Located{{pods[0], "n"}, {pods[1], "n"}}, Waits: []Located{{&v1.Pod{}, "n"}}, Until: time.Unix(60, 0)}
			if turn.Why != "" || !g.Claim(&turn, claim) {
				t.Fatalf("nothing is held: %q", turn.Why)
			}
			tc.edit(g, pods)
			if got := g.queue.byPod[pods[0].UID].claim == nil; got != tc.want || got != slices.Contains(r.released, pods[1].UID) {
				t.Errorf("given up: %t, want %t; places that are given back: %v", got, tc.want, r.released)
			}
		})
	}
}

// twoOfAGroup is a gang of two members, neither of which has a node.
func twoOfAGroup(s Scheduler) (*Gangs, []*v1.Pod) {
	g := New(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Config{}, s)
	g.Serve(testProfile)
	g.SetGroup(testGroup(2, ""))
	pods := groupMembers(2, 0)
	for _, pod := range pods {
		g.SetPod(pod)
	}
	return g, pods
}
