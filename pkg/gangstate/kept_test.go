// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// keepEnv has gangs that run, and what is kept for them.
type keepEnv struct {
	*testEnv
	kept map[string][]*candidates.Kept
	uid  int
}

func newKeepEnv(t *testing.T, keep time.Duration) *keepEnv {
	t.Helper()
	r := &keepEnv{testEnv: newTestEnv(t, 100, 1, false)}
	r.gangs.KeepBy(func(places map[string][]*candidates.Kept) { r.kept = places })
	if err := r.gangs.Configure(Config{KeepFreed: keep}); err != nil {
		t.Fatal(err)
	}
	return r
}

// member makes a member of a gang of four with two GPUs, on a node of its own if it is bound.
func (e *keepEnv) member(gang string, i int, bound bool) *v1.Pod {
	e.uid++
	pod := member(gang, 4, fmt.Sprintf("%s-%d", gang, i)).UID(fmt.Sprint("u", e.uid)).Created(e.clock.Now()).Priority(3).GPUs(2).CPU("8")
	if bound {
		pod.Node(fmt.Sprintf("n%d", i))
	}
	return pod.Obj()
}

// runs has a gang of four run.
func (e *keepEnv) runs(gang string) {
	for i := range 4 {
		e.set(e.member(gang, i, true))
	}
}

// ending has a member end, but be there.
func (e *keepEnv) ending(name string) {
	e.set(schedtest.PodFrom(e.pods[name]).Terminating(e.clock.Now()).Obj())
}

// after lets time pass.
func (e *keepEnv) after(d time.Duration) {
	e.clock.Step(d)
	e.gangs.tick()
}

func (e *keepEnv) want(want map[string]string) {
	e.t.Helper()
	got := map[string]string{}
	for node, places := range e.kept {
		for _, k := range places {
			got[node] += fmt.Sprintf("%s %d %s %d since %d;", k.Gang, k.Count, k.Resource, k.Priority, k.Made.Unix())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("kept places (-want,+got)\n%s", diff)
	}
}

// TestKeptReplacementPlace: a place is kept for the replacement.
func TestKeptReplacementPlace(t *testing.T) {
	t.Parallel()
	const keep = time.Minute
	kept, nothing := map[string]string{"n1": "gang ns/a 2 nvidia.com/gpu 3 since 0;"}, map[string]string{}
	tests := map[string]struct {
		never bool // nothing is kept by configuration
		then  func(*keepEnv)
		want  map[string]string
	}{
		"nothing else happens":       {then: func(*keepEnv) {}, want: kept},
		"its time is nearly over":    {then: func(r *keepEnv) { r.after(keep - time.Second) }, want: kept},
		"its time is over":           {then: func(r *keepEnv) { r.after(keep) }, want: nothing},
		"nothing is to be kept":      {never: true, then: func(*keepEnv) {}, want: nothing},
		"another member ends":        {then: func(r *keepEnv) { r.ending("a-2") }, want: nothing},
		"another member is gone":     {then: func(r *keepEnv) { r.delete("a-2") }, want: nothing},
		"all members are gone":       {then: func(r *keepEnv) { r.delete("a-0"); r.delete("a-2"); r.delete("a-3") }, want: nothing},
		"another one says something": {then: func(r *keepEnv) { r.set(schedtest.PodFrom(r.pods["a-2"]).Label("x", "y").Obj()) }, want: kept},
		"the replacement comes":      {then: func(r *keepEnv) { r.set(r.member("a", 1, false)) }, want: kept},
		"the replacement comes, and goes again": {
			then: func(r *keepEnv) { r.set(r.member("a", 1, false)); r.delete("a-1") }, want: kept,
		},
		"the replacement is placed": {
			then: func(r *keepEnv) { r.set(r.member("a", 1, false)); r.settle(5); r.nothingHeld() }, want: nothing,
		},
		"the replacement is bound by somebody else": {then: func(r *keepEnv) { r.set(r.member("a", 1, true)) }, want: nothing},
		"another gang loses a member there, too": {
			then: func(r *keepEnv) { r.runs("b"); r.after(10 * time.Second); r.delete("b-0") },
			want: map[string]string{"n1": kept["n1"], "n0": "gang ns/b 2 nvidia.com/gpu 3 since 0;"},
		},
		"another gang's time goes on": {
			then: func(r *keepEnv) { r.runs("b"); r.after(10 * time.Second); r.delete("b-0"); r.after(50 * time.Second) },
			want: map[string]string{"n0": "gang ns/b 2 nvidia.com/gpu 3 since 0;"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := keep
			if tc.never {
				d = 0
			}
			r := newKeepEnv(t, d)
			r.runs("a")
			r.want(nothing)
			r.delete("a-1")
			tc.then(r)
			r.want(tc.want)
		})
	}
}

// TestKeptSurplusPlaces: nothing is kept of a gang that does not need it.
func TestKeptSurplusPlaces(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*keepEnv){
		"a member above the minimum is gone": func(r *keepEnv) {
			r.runs("a")
			r.set(r.member("a", 4, true))
			r.delete("a-1")
		},
		"all members end, and one is gone": func(r *keepEnv) {
			r.runs("a")
			for i := range 4 {
				r.ending(fmt.Sprintf("a-%d", i))
			}
			r.delete("a-1")
		},
		"one that was never bound is gone": func(r *keepEnv) {
			for i := range 4 {
				r.set(r.member("a", i, i > 0))
			}
			r.delete("a-0")
		},
		"the gang was never whole": func(r *keepEnv) {
			for i := range 4 {
				r.set(r.member("a", i, i > 1))
			}
			r.delete("a-2")
		},
		"a member leaves the gang, and keeps its place": func(r *keepEnv) {
			r.runs("a")
			pod := r.pods["a-1"].DeepCopy()
			pod.Annotations = nil
			r.set(pod)
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newKeepEnv(t, time.Minute)
			r.room = 0 // nobody is placed meanwhile
			happens(r)
			r.want(map[string]string{})
		})
	}
}

// TestRandomKeptPlaces has members come, end and go. A place is kept only for a gang that is
// one member short, once and in time; and nothing is left of gangs that are gone.
func TestRandomKeptPlaces(t *testing.T) {
	t.Parallel()
	const keep = 10 * time.Second
	seen := 0
	for seed := range uint64(8) {
		r, chaos, since := newKeepEnv(t, keep), rand.New(rand.NewPCG(seed, 1)), map[*candidates.Kept]time.Time{}
		gangs := []string{"a", "b", "c"}
		for range 3000 {
			gang, i := gangs[chaos.IntN(len(gangs))], chaos.IntN(4)
			name := fmt.Sprintf("%s-%d", gang, i)
			switch pod := r.pods[name]; {
			case chaos.IntN(3) == 0:
				r.after(time.Duration(chaos.IntN(8)) * time.Second)
			case pod == nil:
				r.set(r.member(gang, i, true))
			case chaos.IntN(4) == 0:
				r.ending(name)
			case chaos.IntN(4) == 0 || pod.DeletionTimestamp != nil:
				r.delete(name)
			}
			have := map[string]int{}
			for _, pod := range r.pods {
				if pod.DeletionTimestamp == nil {
					have["gang ns/"+pod.Annotations["nvtopo.dev/gang"]]++
				}
			}
			now, of := r.clock.Now(), []string{}
			for node, places := range r.kept {
				for _, k := range places {
					if _, ok := since[k]; !ok {
						since[k] = now
						seen++
					}
					if have[k.Gang] != 3 || slices.Contains(of, k.Gang) || now.Sub(since[k]) >= keep {
						t.Fatalf("seed %d: on %s something is kept for %s since %v, which has %d members; others of its are %v", seed, node, k.Gang, now.Sub(since[k]), have[k.Gang], of)
					}
					of = append(of, k.Gang)
				}
			}
		}
		for _, gang := range gangs {
			for i := range 4 {
				r.delete(fmt.Sprintf("%s-%d", gang, i))
			}
		}
		if r.want(map[string]string{}); len(r.gangs.kept) > 0 {
			t.Errorf("seed %d: %d gangs are left", seed, len(r.gangs.kept))
		}
	}
	if seen < 100 {
		t.Errorf("only %d places were kept", seen)
	}
	t.Logf("%d places were kept", seen)
}
