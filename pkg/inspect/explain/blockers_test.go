// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// controlled makes a pod one of a ReplicaSet, so that it may be moved.
func controlled(p *v1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "set", Controller: new(true)}}
	p.Labels["app"] = p.Name
}

// TestMoveAdvice: the advice names the pod to move. Pod "a" is in the way on n0, and n1 would take
// it.
func TestMoveAdvice(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(w *testEnv, a *v1.Pod)
		wantTo    string
		wantStays string // in the reason
	}{
		"a pod of a ReplicaSet":         {func(*testEnv, *v1.Pod) {}, "n1", ""},
		"it says that it is not to be":  {func(_ *testEnv, a *v1.Pod) { a.Annotations[podrequest.MovableKey] = "false" }, "", podrequest.MovableKey},
		"a member of a gang":            {func(_ *testEnv, a *v1.Pod) { a.Labels[schedulingv1alpha1.PodGroupLabel] = "train" }, "", "it is a member of"},
		"a pod of no controller":        {func(_ *testEnv, a *v1.Pod) { a.OwnerReferences = nil }, "", "no controller"},
		"another scheduler placed it":   {func(_ *testEnv, a *v1.Pod) { delete(a.Annotations, allocation.Key) }, "", "did not choose its GPUs"},
		"its budget has one left":       {func(w *testEnv, _ *v1.Pod) { w.budget("team", "a", 1) }, "n1", ""},
		"its budget has none left":      {func(w *testEnv, _ *v1.Pod) { w.budget("team", "a", 0) }, "", "PodDisruptionBudget"},
		"a budget of another namespace": {func(w *testEnv, _ *v1.Pod) { w.budget("rival", "a", 0) }, "n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
			w.holds(t, "a", "n0", 0, 1)
			w.holds(t, "b", "n1", 0, 1, 2)
			controlled(w.pod("a"))
			tc.change(w, w.pod("a"))
			w.waits(pod("asks", 8).Obj())
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Candidates) == 0 || len(e.Candidates[0].Blockers) != 1 || e.Candidates[0].Blockers[0].Pod != "team/a" {
				t.Fatalf("candidates %+v, want n0 with team/a in the way", e.Candidates)
			}
			b := e.Candidates[0].Blockers[0]
			if b.MovesTo != tc.wantTo || !strings.Contains(b.Stays, tc.wantStays) || (b.Stays == "") != (tc.wantStays == "") {
				t.Errorf("it moves to %q and stays because %q, want %q and %q", b.MovesTo, b.Stays, tc.wantTo, tc.wantStays)
			}
			if said := strings.Join(e.Evidence, "; "); strings.Contains(said, "n1 would take") != (tc.wantTo != "") ||
				strings.Contains(said, "team/a is not to be moved: ") != (tc.wantStays != "") {
				t.Errorf("evidence %q, want it to say whether the pod may be moved", said)
			}
		})
	}
}

// TestMoveToTheGangsNode: a pod is not moved to a node that the gang needs, from which the advice would be to move
// it back. Both members need a whole machine, and a third machine is there or not.
func TestMoveToTheGangsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		third     bool
		wantTo    string
		wantStays string
	}{
		"two machines":           {false, "", "it would go to a node that the gang needs: n1"},
		"a third, of which half": {true, "n2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
			w.holds(t, "a", "n0", 0, 1)
			controlled(w.pod("a"))
			if tc.third {
				w.node(t, "n2", cube, nil)
				w.holds(t, "b", "n2", 0, 1, 2)
			}
			w.group("train", 2, []*v1.Pod{pod("asks", 8).Obj(), pod("second", 8).Obj()})
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Candidates) == 0 || len(e.Candidates[0].Blockers) != 1 {
				t.Fatalf("%s: %s: candidates %+v, want n0 with team/a in the way", e.Cause, e.Reason, e.Candidates)
			}
			if b := e.Candidates[0].Blockers[0]; b.Pod != "team/a" || b.MovesTo != tc.wantTo || b.Stays != tc.wantStays {
				t.Errorf("%s moves to %q and stays because %q, want %q and %q", b.Pod, b.MovesTo, b.Stays, tc.wantTo, tc.wantStays)
			}
		})
	}
}

// TestMovablePodsFirst: pods that may be moved are named first. One of two pods has to go, and the
// one that stays has the lower priority.
func TestMovablePodsFirst(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil)
	w.holds(t, "stays", "n0", 0, 1, 2, 3)
	w.holds(t, "moves", "n0", 4, 5, 6, 7)
	controlled(w.pod("moves"))
	w.pod("moves").Spec.Priority = new(int32(10))
	w.waits(pod("asks", 4).Obj())
	e, err := Pod(w.World, "team", "asks")
	if err != nil {
		t.Fatal(err)
	}
	if got := blockersOf(e); len(got) != 1 || got[0] != "team/moves" {
		t.Errorf("in the way are %q, want team/moves", got)
	}
}

// budget adds a PodDisruptionBudget of the pods of an app.
func (e *testEnv) budget(namespace, app string, allowed int32) {
	e.Budgets = append(e.Budgets, policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
}
