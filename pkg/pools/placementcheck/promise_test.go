// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	h200 = "NVIDIA H200"
	l40s = "NVIDIA L40S"
)

// withPodSet adds a PodSet of other pods of the same gang.
func withPodSet(w *kueue.Workload, name string, pods int32, gpus int) *kueue.Workload {
	other := *w.Spec.PodSets[0].DeepCopy()
	other.Name, other.Count, other.Template.Spec = name, pods, podSpec(gpus)
	w.Spec.PodSets = append(w.Spec.PodSets, other)
	w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: name, Count: &pods})
	return w
}

// TestPromisedModel: the pods of a gang are restricted to the GPU model of its plan.
func TestPromisedModel(t *testing.T) {
	tests := map[string]struct {
		build func(*testEnv) // beside two machines each of H200 and L40S
		job   *kueue.Workload
		want  map[string]string // by PodSet
	}{
		"the faster model": {job: job("train", 2, 8, gangOf("g", 2)), want: map[string]string{"main": h200}},
		"the one that has room": {
			build: func(e *testEnv) { e.pod("other", "h200-0", nil, 0) },
			job:   job("train", 2, 8, gangOf("g", 2)), want: map[string]string{"main": l40s},
		},
		"one of several that the pods name": {
			job: job("train", 2, 8, gangOf("g", 2, podrequest.GPUModelKey, "l40s,h100")), want: map[string]string{"main": l40s},
		},
		"any model will do": {job: job("train", 4, 8, gangOf("g", 4, gangrequest.MixedModelsKey, "true"))},
		"any model will do, and the plan has one": {
			job: job("train", 2, 8, gangOf("g", 2, gangrequest.MixedModelsKey, "true")),
		},
		"a launcher without GPUs": {job: withLauncher(job("train", 2, 8, gangOf("g", 3))), want: map[string]string{"main": h200}},
		"a launcher that asks for another number of GPUs": {
			job:  withPodSet(job("train", 2, 8, gangOf("g", 3)), "launcher", 1, 1),
			want: map[string]string{"main": h200, "launcher": l40s},
		},
		"the pods say it themselves, and Kueue refuses what is said twice": {
			job: job("train", 2, 8, gangOf("g", 2, podrequest.PromisedModelKey, l40s)),
		},
		"single pods": {job: job("serve", 2, 8, nil)},
		"a model that is not known": {
			build: func(e *testEnv) {
				for i := range e.Topologies {
					for n := range e.Topologies[i].Spec.GPUs {
						e.Topologies[i].Spec.GPUs[n].Model = ""
					}
				}
			},
			job: job("train", 2, 8, gangOf("g", 2)),
		},
		"room that evictions make: who goes decides where": {
			build: func(e *testEnv) {
				for i := range e.Nodes {
					e.pod(fmt.Sprint("extra", i), e.Nodes[i].Name, func(p *v1.Pod) { p.Spec.Priority = new(int32(-1)) }, 0)
				}
			},
			job: job("train", 2, 8, gangOf("g", 2)),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			for i := range 2 {
				e.node(fmt.Sprint("h200-", i), "hgx-h200", nil)
				e.node(fmt.Sprint("l40s-", i), "l40s-8", nil)
			}
			if tc.build != nil {
				tc.build(e)
			}
			d := Decide(NewSnapshot(&e.World, NewGraphs()), tc.job)
			if d.Verdict != Ready {
				t.Fatalf("%s: %s", d.Verdict, d.Message)
			}
			got := map[string]string{}
			for _, u := range d.PodSetUpdates {
				for key, value := range u.Annotations {
					if key != podrequest.PromisedModelKey {
						t.Errorf("annotation %s", key)
					}
					got[u.Name] = value
				}
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("models by PodSet (-want,+got)\n%s", diff)
			}
		})
	}
}

// told returns the Workload with its decision, as Kueue puts it on the pods; without the model if
// that is to be left out.
func told(w *kueue.Workload, d *Decision, model bool) *kueue.Workload {
	w = w.DeepCopy()
	c := checkOf(w)
	c.State = kueue.CheckReady
	for _, u := range d.PodSetUpdates {
		if !model {
			u.Annotations = nil
		}
		c.PodSetUpdates = append(c.PodSetUpdates, u)
	}
	return w
}

// TestPromisedPlaces: gangs of whole machines that were promised a place in a pool of two models all
// find one, in whichever order the scheduler takes them. Without the promised model some do not, and
// would be evicted by Kueue and admitted again.
func TestPromisedPlaces(t *testing.T) {
	g := NewGraphs()
	promised, lost := 0, map[bool]int{}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 31))
		e := newTestEnv(t)
		for i := range 2 + r.IntN(4) {
			e.node(fmt.Sprint("h200-", i), "hgx-h200", nil)
		}
		for i := range 2 + r.IntN(4) {
			e.node(fmt.Sprint("l40s-", i), "l40s-8", nil)
		}
		start := NewSnapshot(&e.World, g)
		s := start
		var jobs []*kueue.Workload
		var answers []Decision
		for i := range 4 {
			name := fmt.Sprint("job-", i)
			w := job(name, 1+r.IntN(4), 8, nil)
			w.Spec.PodSets[0].Template.Annotations = gangOf(name, int(w.Spec.PodSets[0].Count))
			if d := Decide(s, w); d.Verdict == Ready {
				s = d.after
				jobs, answers = append(jobs, w), append(answers, d)
			}
		}
		promised += len(jobs)
		for range 6 {
			order := r.Perm(len(jobs))
			for _, model := range []bool{true, false} {
				at := start
				for _, i := range order {
					w := told(jobs[i], &answers[i], model)
					a, err := at.read(w, at.flavorsOf(w), nil)
					if err != nil {
						t.Fatal(err)
					}
					found, err := at.fit(a, nil)
					if err != nil {
						if lost[model]++; model {
							t.Errorf("seed %d, order %v: %s was promised a place and has none: %v", seed, order, w.Name, err)
						}
						continue
					}
					at = found.after
				}
			}
		}
		for i := range e.Topologies { // another cluster may have a node of this name
			delete(g.known, e.Topologies[i].Name)
		}
	}
	t.Logf("%d promises; without the model %d gangs had no place in one of 6 orders", promised, lost[false])
	if promised < 100 || lost[false] < 20 {
		t.Errorf("%d promises, of which %d are not kept without the model, tell little", promised, lost[false])
	}
}
