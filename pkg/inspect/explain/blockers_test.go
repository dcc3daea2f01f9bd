// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
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

// TestMoveSeveral: the commands that move pods are given only where the other nodes would take all of them
// together, and where the pod that asks would get their place. Pods "a" and "b" of 2 GPUs each are in the way on
// n0, of which the rest is free.
func TestMoveSeveral(t *testing.T) {
	const (
		commands = "move team/a and team/b off n0 (kubectl cordon n0; kubectl -n team delete pod a b; and once their replacements have nodes: kubectl uncordon n0)"
		end      = "end team/a and team/b for good (the other nodes have no room for all these pods: scale down what makes them again)"
	)
	older := func(w *testEnv, p *v1.Pod) {
		p.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		w.waits(p)
	}
	for name, tc := range map[string]struct {
		free   []int // GPUs on n1, n2
		change func(w *testEnv)
		want   string // in the next step
		not    string
		says   string // in the evidence
	}{
		"no other node has room":         {free: []int{0}, want: end, not: "kubectl", says: "if team/a and team/b went; the other nodes have no room for all these pods"},
		"another node has room for one":  {free: []int{2}, want: end, not: "kubectl"},
		"another node has room for both": {free: []int{4}, want: commands, says: "if team/a and team/b went, which n1 would take"},
		"two others have room for one":   {free: []int{2, 2}, want: commands, says: "went, which n1 and n2 would take"},
		"one of them has another model": {
			free: []int{4}, change: func(w *testEnv) {
				w.pod("b").Annotations[podrequest.GPUModelKey] = "H100"
			}, want: end, not: "kubectl",
		},
		"one may stay on the node although it is cordoned": {
			free: []int{2}, change: func(w *testEnv) {
				w.pod("b").Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
			}, want: end, not: "kubectl",
		},
		"their budget allows one": {
			free: []int{4}, change: func(w *testEnv) {
				w.budget("team", "a", 1)
				w.pod("b").Labels["app"] = "a"
			}, want: "wait for the pods that are named", not: "kubectl", says: "team/a is not to be moved: a PodDisruptionBudget does not allow the disruption of all of them",
		},
		"a pod that waits for longer would take the place": {
			free: []int{4}, change: func(w *testEnv) { older(w, pod("older", 6).Obj()) },
			want: "wait for the pods that are named", not: "kubectl", says: "team/a is not to be moved: pod team/older, which comes before, would take the place",
		},
		"one of higher priority would": {
			free: []int{4}, change: func(w *testEnv) {
				p := pod("urgent", 6).Obj()
				p.Spec.Priority = new(int32(1))
				w.waits(p)
			},
			want: "wait for the pods that are named", not: "kubectl", says: "pod team/urgent, which comes before, would take the place",
		},
		"a gang that waits for longer would": {
			free: []int{4}, change: func(w *testEnv) {
				for i, gpus := range []int{3, 3, 2} { // each has room now, and together they have none
					older(w, pod(fmt.Sprint("m", i), gpus).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "3").Obj())
				}
			},
			want: "wait for the pods that are named", not: "kubectl", says: "team/a is not to be moved: gang team/g, which comes before, would take the place",
		},
		"a gang that waits for longer has no room even then": {
			free: []int{4}, change: func(w *testEnv) {
				for _, name := range []string{"m0", "m1", "m2"} {
					older(w, pod(name, 6).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "3").Obj())
				}
			},
			want: commands,
		},
		"a pod that waits for longer has a claim that is missing": {
			free: []int{4}, change: func(w *testEnv) {
				w.ClaimsKnown = true
				p := pod("older", 6).Obj()
				p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
				older(w, p)
			},
			want: commands,
		},
		"a gang that waits for longer has a member with a claim that is missing": {
			free: []int{4}, change: func(w *testEnv) {
				w.ClaimsKnown = true
				for i, gpus := range []int{3, 3, 2} {
					p := pod(fmt.Sprint("m", i), gpus).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "3").Obj()
					if i == 0 {
						p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
					}
					older(w, p)
				}
			},
			want: commands,
		},
		"so many pods wait for longer that it is not found out": {
			free: []int{4}, change: func(w *testEnv) {
				for i := range maxAhead + 1 {
					older(w, pod(fmt.Sprint("older-", i), 1).Obj())
				}
			},
			want: "wait for the pods that are named", not: "kubectl", says: "team/a is not to be moved: more than 128 pods come before, and one of them may take the place",
		},
		"a pod that waits for longer asks for what is not there": {
			free: []int{4}, change: func(w *testEnv) { older(w, pod("older", 8).Annotation(podrequest.GPUModelKey, "H100").Obj()) }, want: commands,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			for i, free := range tc.free {
				n := fmt.Sprint("n", i+1)
				w.node(t, n, cube, nil)
				for g := range 8 - free {
					w.holds(t, fmt.Sprintf("h-%s-%d", n, g), n, g)
				}
			}
			w.holds(t, "a", "n0", 0, 1)
			w.holds(t, "b", "n0", 2, 3)
			controlled(w.pod("a"))
			controlled(w.pod("b"))
			p := pod("asks", 8).Obj()
			p.CreationTimestamp = metav1.NewTime(now)
			w.waits(p)
			if tc.change != nil {
				tc.change(w)
			}
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if got := blockersOf(e); !slices.Equal(got, []string{"team/a", "team/b"}) {
				t.Fatalf("%s: %s: in the way are %q, want team/a and team/b", e.Cause, e.Reason, got)
			}
			if said := strings.Join(e.Evidence, "; "); !strings.Contains(e.Next, tc.want) || tc.not != "" && strings.Contains(e.Next, tc.not) || !strings.Contains(said, tc.says) {
				t.Errorf("%s: next step %q, want %q without %q; evidence %q, want %q", e.Cause, e.Next, tc.want, tc.not, said, tc.says)
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
