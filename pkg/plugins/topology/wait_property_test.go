// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// going are the pods of a random node that end without an eviction, by how long they take.
type going map[*v1.Pod]time.Duration

// alarm deletes some pods of a node, gives all a grace period, and may make one the victim of another
// nominated pod, which the API server does not show yet.
func (e *testEnv) alarm(r *rand.Rand, node int, seed uint64) (soon, slow going, other *v1.Pod) {
	e.tb.Helper()
	soon, slow = going{}, going{}
	graces := []time.Duration{0, 30 * time.Second, 4 * time.Minute, 6 * time.Minute, 11 * time.Minute, 2 * time.Hour}
	sort := func(pod *v1.Pod, within time.Duration) {
		if within <= e.plugin.preemptor.patience {
			soon[pod] = within
		} else {
			slow[pod] = within
		}
	}
	for _, pod := range e.pods {
		grace := graces[r.IntN(len(graces))]
		withGrace(pod, grace)
		if r.IntN(4) > 0 {
			continue
		}
		if r.IntN(6) == 0 {
			told(pod, grace, -time.Hour) // it should have ended, and goes nowhere
			continue
		}
		left := time.Duration(r.Int64N(int64(grace) + int64(time.Minute)))
		told(pod, grace+time.Minute, left)
		sort(pod, left)
	}
	i := r.IntN(len(e.pods))
	victim := e.pods[i]
	if r.IntN(2) == 0 || victim.DeletionTimestamp != nil || victim.Annotations == nil {
		return soon, slow, nil
	}
	other = asks(fmt.Sprintf("other-%d", seed), int32(3+6*r.IntN(2)), 1).Obj()
	e.known([]*v1.Pod{other})
	e.nominate(other, framework.NewPostFilterResultWithNominatedNode(e.nodes[node].Name))
	a, err := allocation.Parse(victim.Annotations[allocation.Key])
	if err != nil {
		e.tb.Fatal(err)
	}
	a.Containers[0].GPUs = a.Containers[0].GPUs[:1]
	e.state.Nominator.ReserveNominated(other.UID, a, reservations.WaitsFor{Victims: []types.UID{victim.UID}, Until: time.Now().Add(time.Hour)})
	sort(victim, eviction.GraceOf(victim))
	return soon, slow, other
}

// trial is a pod, a node, and the framework's filters as judge.
type trial struct {
	s     *testEnv
	pod   *v1.Pod
	info  fwk.NodeInfo
	state fwk.CycleState
}

// without returns the node without some pods, and whether the pod fits it then.
func (x *trial) without(pods []*v1.Pod) (fwk.NodeInfo, bool) {
	x.s.tb.Helper()
	copied := x.info.Snapshot()
	for _, p := range pods {
		if err := copied.RemovePod(klog.Background(), p); err != nil {
			x.s.tb.Fatal(err)
		}
	}
	return copied, x.s.fw.RunFilterPluginsWithNominatedPods(x.s.ctx, x.state, x.pod, copied).IsSuccess()
}

// shortest is the shortest time, in steps of alike, in which some of the ending pods are gone and make
// room: by all subsets.
func (x *trial) shortest(g going) (steps time.Duration, ok bool) {
	pods := make([]*v1.Pod, 0, len(g))
	for pod := range g {
		pods = append(pods, pod)
	}
	for set := range uint64(1) << len(pods) {
		var gone []*v1.Pod
		var within time.Duration
		for i, p := range pods {
			if set>>i&1 != 0 {
				gone, within = append(gone, p), max(within, g[p])
			}
		}
		if _, fits := x.without(gone); fits && (!ok || within/alike < steps) {
			steps, ok = within/alike, true
		}
	}
	return steps, ok
}

// cheapest is the least cost of evicting some pods beside those that end soon.
func (x *trial) cheapest(could []*v1.Pod, soon going, pdbs []*policyv1.PodDisruptionBudget) (best eviction.Cost, names []string, found bool) {
	c, b := lifecycle.ReadCycle(x.state), eviction.NewBudgets(pdbs)
	for set := range uint64(1) << len(could) {
		var victims, gone []*v1.Pod
		for i, p := range could {
			if set>>i&1 != 0 {
				victims = append(victims, p)
			}
		}
		for p := range soon {
			gone = append(gone, p)
		}
		node, fits := x.without(append(gone, victims...))
		if !fits {
			continue
		}
		_, q := x.s.state.Nodes.Plan(&c.Demand, node, x.s.snapshot.NodeInfos())
		cost := eviction.CostOf(x.s.plugin.preemptor.podsOf(victims, b), b.Allowed, q)
		if !found || cost.Compare(&best) < 0 {
			best, names, found = cost, namesOf(victims), true
		}
	}
	return best, names, found
}

// TestVictimsBesideLeavers compares the choice with all subsets of pods where some are ending and one is
// the victim of another pod: which pods wait, and for how long; that no pod is evicted that the preemptor
// must not choose; and that the choice is cheapest.
func TestVictimsBesideLeavers(t *testing.T) {
	machines := []string{"dgx1-v100", "a100-pcie-4-bridged", "v100-pcie-8"}
	s := newTestEnv(t, machines...)
	p := s.plugin.preemptor
	waited, slower, evicted, none := 0, 0, 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 17))
		node := r.IntN(len(machines))
		s.pods = nil
		fillNode(s, r, node)
		if len(s.pods) == 0 {
			continue
		}
		soon, slow, other := s.alarm(r, node, seed)
		s.show()
		pod := wants(r, s.state.Nodes.Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph.Len())
		pdbs := budgets(r)
		info, err := s.snapshot.NodeInfos().Get(s.nodes[node].Name)
		if err != nil {
			t.Fatal(err)
		}
		x := &trial{s: s, pod: pod, info: info, state: s.cycle(pod)}
		if _, fits := x.without(nil); !fits {
			w := p.waitOn(s.ctx, x.state, lifecycle.ReadCycle(x.state), pod, info)
			steps, ok := x.shortest(soon)
			all := maps.Clone(soon)
			maps.Copy(all, slow)
			lateSteps, lateOK := x.shortest(all)
			switch {
			case ok:
				waited++
				if w == nil || w.within > p.patience || w.within/alike != steps {
					t.Fatalf("seed %d: waits %+v, want one of %v to %v", seed, w, steps*alike, (steps+1)*alike)
				}
			case lateOK != (w != nil) || w != nil && w.within/alike != lateSteps:
				t.Fatalf("seed %d: waits %+v, want one of %v to %v: %t", seed, w, lateSteps*alike, (lateSteps+1)*alike, lateOK)
			default:
				if w != nil {
					slower++
				}
				if s.compareEvictions(x, w, soon, slow, pdbs, seed) {
					evicted++
				} else {
					none++
				}
			}
		}
		if other != nil {
			s.state.Nominator.EndNominated(other.UID)
			s.queue.Delete(other)
		}
	}
	t.Logf("%d waits, %d longer than is reasonable, %d evictions, %d without either", waited, slower, evicted, none)
	if waited < 30 || slower < 10 || evicted < 30 {
		t.Error("the seeds test nothing")
	}
}

// compareEvictions reports whether any pod has to be evicted, after comparing that with brute force.
func (e *testEnv) compareEvictions(x *trial, late *wait, soon, slow going, pdbs []*policyv1.PodDisruptionBudget, seed uint64) bool {
	e.tb.Helper()
	a := newAttempt()
	if late != nil {
		a.before = late.within
	}
	var could []*v1.Pod
	for _, pi := range x.info.GetPods() {
		pod := pi.GetPod()
		_, goes := soon[pod]
		_, drags := slow[pod]
		if !goes && !drags && pod.DeletionTimestamp == nil && *pod.Spec.Priority < *x.pod.Spec.Priority && (late == nil || eviction.GraceOf(pod) < late.within) {
			could = append(could, pod)
		}
	}
	want, names, ok := x.cheapest(could, soon, pdbs)
	ctx := context.WithValue(e.ctx, attemptKey{}, a)
	got, violations, status := e.plugin.preemptor.SelectVictimsOnNode(ctx, x.state.Clone(), x.pod, x.info.Snapshot(), pdbs)
	if ok != status.IsSuccess() {
		e.tb.Fatalf("seed %d: %v (%v), brute force finds %v", seed, status, namesOf(got), names)
	}
	for _, victim := range got {
		if !slices.Contains(could, victim) {
			e.tb.Fatalf("seed %d: %s is evicted, which the pod could not choose", seed, victim.Name)
		}
	}
	if ok {
		b := eviction.NewBudgets(pdbs)
		cost := eviction.CostOf(e.plugin.preemptor.podsOf(got, b), b.Allowed, a.plan(x.info.Node().Name).quality)
		if d := cmp.Diff(want, cost); d != "" || cost.Violations != violations {
			e.tb.Fatalf("seed %d: victims %v with %d violations, brute force %v; cost (-brute force +choice):\n%s", seed, namesOf(got),
				violations, names, d)
		}
	}
	return ok
}
