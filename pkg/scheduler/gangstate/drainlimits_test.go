// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// TestKeptAmounts: only the needs of the gang's members are kept, and only on nodes where this helps.
func TestKeptAmounts(t *testing.T) {
	t.Parallel()
	const cpu = v1.ResourceCPU
	with := func(change ...func(*Place)) *Need {
		n := needOn("n1", "n2")
		for i, f := range change {
			f(n.Places[i])
		}
		return n
	}
	none, roomy := func(*Place) {}, func(p *Place) { p.Way, p.Lacks = Nobody, nil }
	own := func(p *Place) { p.Way, p.InWay = Own, "own on "+p.Node }
	lacksCPU := func(p *Place) { p.Lacks = []v1.ResourceName{cpu, gpu} }
	tests := map[string]struct {
		looks []*Need // needs at successive times
		want  map[string]string
		says  string // message after the last one
	}{
		"others are in the way":                       {[]*Need{with()}, map[string]string{"n1": "8 nvidia.com/gpu;", "n2": "8 nvidia.com/gpu;"}, "places on 2 nodes (nvidia.com/gpu)"},
		"CPU lacks on one node":                       {[]*Need{with(lacksCPU)}, map[string]string{"n1": "4000 cpu;8 nvidia.com/gpu;", "n2": "4000 cpu;8 nvidia.com/gpu;"}, "(cpu, nvidia.com/gpu)"},
		"CPU lacked before":                           {[]*Need{with(lacksCPU), with()}, map[string]string{"n1": "4000 cpu;8 nvidia.com/gpu;", "n2": "4000 cpu;8 nvidia.com/gpu;"}, "(cpu, nvidia.com/gpu)"},
		"one node has room for its place":             {[]*Need{with(none, roomy)}, map[string]string{"n1": "8 nvidia.com/gpu;", "n2": "8 nvidia.com/gpu;"}, "places on 2 nodes"},
		"its own namespace is in the way on one node": {[]*Need{with(own)}, map[string]string{"n2": "8 nvidia.com/gpu;"}, "places on 1 nodes"},
		"and lacks CPU there":                         {[]*Need{with(func(p *Place) { own(p); lacksCPU(p) })}, map[string]string{"n2": "8 nvidia.com/gpu;"}, "places on 1 nodes"},
		"only its own namespace is in the way":        {[]*Need{with(roomy, own)}, map[string]string{}, "only pods of its own namespace are in the way, such as own on n2"},
		"nobody is in the way":                        {[]*Need{with(roomy, roomy)}, map[string]string{}, ""},
		"nobody is in the way any more":               {[]*Need{with(), with(roomy, roomy)}, map[string]string{"n1": "8 nvidia.com/gpu;", "n2": "8 nvidia.com/gpu;"}, "places on 2 nodes"},
		"its own namespace is in the way later":       {[]*Need{with(), with(own)}, map[string]string{"n1": "8 nvidia.com/gpu;", "n2": "8 nvidia.com/gpu;"}, "places on 2 nodes"},
		"it asks for no devices":                      {[]*Need{{}}, map[string]string{}, "it asks for no devices"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDrainEnv(t)
			pods := r.gang("a", 3, 0)
			r.clock.Step(drainAfter)
			text := ""
			for _, n := range tc.looks {
				turn, _ := r.gangs.Begin(pods[0])
				if s := r.gangs.Starving(&turn); s.From.After(r.clock.Now()) {
					t.Fatalf("nothing is kept before %v", s.From)
				}
				text = r.gangs.Drain(&turn, n)
			}
			got := map[string]string{}
			for node, places := range r.kept {
				for _, k := range places {
					got[node] += fmt.Sprintf("%d %s;", k.Count, k.Resource)
					if k.Priority != 3 || !k.Made.Equal(time.Unix(0, 0)) {
						t.Errorf("kept is %+v", k)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kept places (-want,+got)\n%s", diff)
			}
			if !strings.Contains(text, tc.says) || tc.says == "" && text != "" {
				t.Errorf("the gang says %q, want %q", text, tc.says)
			}
		})
	}
}

// TestDrainNamespaces: places are kept for the gangs of some namespaces.
func TestDrainNamespaces(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		only, not []string
		want      bool
	}{
		"nothing is said":          {want: true},
		"it is named":              {only: []string{"other", "ns"}, want: true},
		"another one is named":     {only: []string{"other"}},
		"it is excluded":           {not: []string{"ns"}},
		"another one is excluded":  {not: []string{"other"}, want: true},
		"it is named and excluded": {only: []string{"ns"}, not: []string{"ns"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDrainEnvWith(t, Config{DrainAfter: drainAfter, DrainFor: drainFor, DrainShare: 50, DrainTotalShare: 75, DrainNamespaces: tc.only, DrainExcludedNamespaces: tc.not})
			pods := r.gang("a", 0, 0)
			if _, text := r.refuse(pods[0], "n1"); text != "" {
				t.Errorf("it says %q before it has waited", text)
			}
			r.clock.Step(drainAfter)
			_, text := r.refuse(pods[0], "n1")
			if got := len(r.kept) > 0; got != tc.want {
				t.Errorf("places are kept: %t, want %t", got, tc.want)
			}
			if want := "no places are kept for gangs of its namespace"; (text == want) == tc.want {
				t.Errorf("it says %q", text)
			}
		})
	}
}

// TestDrainShare: places are kept on a share of the nodes.
func TestDrainShare(t *testing.T) {
	t.Parallel()
	names := func(from, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("n%d", from+i))
		}
		return out
	}
	tests := map[string]struct {
		others func(*drainEnv)
		needs  int
		of     int // nodes with devices; 0: 10
		want   bool
		says   string
	}{
		"its share":                {needs: 5, want: true},
		"more than its share":      {needs: 6, says: "no places are kept for it: it needs 6 of 10 nodes with nvidia.com/gpu, and places are kept on 5 at most for gangs of one namespace"},
		"a share of less than one": {needs: 1, of: 1, want: true},
		"its namespace has the rest": {
			others: func(r *drainEnv) { r.refuse(r.gangOf("ns", "same", 1, 0)[0], names(5, 3)...) }, needs: 3,
			says: "it needs 3 of 10 nodes with nvidia.com/gpu, and places are kept on 5 at most for gangs of one namespace, now on 3 for others",
		},
		"beside another one of its namespace": {others: func(r *drainEnv) { r.refuse(r.gangOf("ns", "same", 1, 0)[0], names(5, 3)...) }, needs: 2, want: true},
		"all have the rest": {
			others: func(r *drainEnv) { r.refuse(r.gangOf("other", "o", 1, 0)[0], names(5, 5)...) }, needs: 3,
			says: "it needs 3 of 10 nodes with nvidia.com/gpu, and places are kept on 7 at most for all gangs, now on 5 for others",
		},
		"beside those of another one": {others: func(r *drainEnv) { r.refuse(r.gangOf("other", "o", 1, 0)[0], names(5, 5)...) }, needs: 2, want: true},
		"in place of a younger one": {
			others: func(r *drainEnv) { r.refuse(r.gangOf("ns", "younger", 0, time.Minute)[0], names(5, 5)...) }, needs: 5, want: true,
		},
		"in place of one of a lower priority, of the same nodes": {
			others: func(r *drainEnv) { r.refuse(r.gangOf("ns", "lower", -1, 0)[0], names(4, 5)...) }, needs: 5, want: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDrainEnv(t)
			r.clock.Step(2 * drainAfter)
			if tc.others != nil {
				tc.others(r)
			}
			n := needOn(names(0, tc.needs)...)
			if tc.of > 0 {
				n.Have[gpu] = tc.of
			}
			_, text := r.refuseWith(r.gang("a", 0, 0)[0], n)
			got := 0
			for _, places := range r.kept {
				if places[0].Gang == "gang ns/a" {
					got++
				}
			}
			if want := map[bool]int{true: tc.needs}[tc.want]; got != want {
				t.Errorf("places are kept on %d nodes, want %d", got, want)
			}
			if !tc.want && !strings.Contains(text, tc.says) {
				t.Errorf("it says %q, want %q", text, tc.says)
			}
		})
	}
}

// TestDrainTime: places are kept for a time, and then not kept for as long.
func TestDrainTime(t *testing.T) {
	t.Parallel()
	nothing := map[string]string{}
	t.Run("the longest time", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a, b := r.gang("a", 0, 0), r.gangOf("other", "b", 0, time.Minute)
		r.clock.Step(drainAfter)
		r.refuse(a[0], "n1", "n2")
		r.after(drainFor - time.Second)
		r.want("just before its end", map[string]string{"n1": "gang ns/a", "n2": "gang ns/a"})
		r.after(time.Second)
		r.want("at its end", nothing)
		until := r.clock.Now().Add(drainFor)
		from, text := r.refuse(a[0], "n3")
		if want := "places are kept for gangs of its namespace from 1970-01-01T08:30:00Z on"; !from.Equal(until) || !strings.HasPrefix(text, want) {
			t.Errorf("places are kept from %v, want %v; it says %q, want %q", from, until, text, want)
		}
		r.refuse(b[0], "n1", "n3")
		r.want("another namespace has nodes that were not kept", map[string]string{"n3": "gang other/b"})
		r.gone("b")
		r.after(drainFor - time.Second)
		r.refuse(a[0], "n1")
		r.want("it was not open for as long", nothing)
		r.after(time.Second)
		r.refuse(a[0], "n1")
		r.want("it was open for as long", map[string]string{"n1": "gang ns/a"})
	})
	t.Run("one that gives up", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a, b := r.gang("a", 0, 0), r.gangOf("other", "b", 0, time.Minute)
		r.clock.Step(2 * drainAfter)
		r.refuse(a[0], "n1", "n2")
		r.after(20 * time.Minute)
		r.gone("a")
		r.want("it is gone", nothing)
		again := r.gang("again", 0, 2*time.Minute)
		if from, _ := r.refuse(again[0], "n3"); !from.Equal(r.clock.Now().Add(20 * time.Minute)) {
			t.Errorf("places are kept for its namespace from %v", from)
		}
		r.refuse(b[0], "n1", "n3")
		r.want("its nodes are open", map[string]string{"n3": "gang other/b"})
		r.gone("b")
		r.after(20 * time.Minute)
		r.refuse(again[0], "n1", "n2")
		r.want("for as long as they were kept", map[string]string{"n1": "gang ns/again", "n2": "gang ns/again"})
	})
	t.Run("one that is placed", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a := r.gang("a", 0, 0)
		r.clock.Step(drainAfter)
		r.refuse(a[0], "n1", "n2")
		r.after(time.Hour)
		r.bound(a, "n1", "m")
		r.want("it is placed", nothing)
		next := r.gang("next", 0, time.Minute)
		if from, _ := r.refuse(next[0], "n1", "n2"); from.After(r.clock.Now()) {
			t.Errorf("places are kept for its namespace from %v", from)
		}
		r.want("one node was kept in vain", map[string]string{"n1": "gang ns/next"})
	})
	t.Run("one that asks for fewer members meanwhile", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a := r.gang("a", 0, 0)
		r.clock.Step(drainAfter)
		r.refuse(a[0], "n1", "n2")
		r.after(time.Hour)
		for i, pod := range a {
			fewer := schedtest.PodFrom(pod).Annotation(gangrequest.GangSizeKey, "1")
			if i == 0 {
				fewer.Node("n1")
			}
			r.set(fewer.Obj())
		}
		r.want("it has its minimum", nothing)
		if from, _ := r.refuse(r.gang("next", 0, time.Minute)[0], "n3"); !from.Equal(r.clock.Now().Add(time.Hour)) {
			t.Errorf("places are kept for its namespace from %v, want as late as if it had given up", from)
		}
	})
	t.Run("one that gives way to an older one", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a, b := r.gang("a", 0, time.Minute), r.gangOf("other", "b", 0, 0)
		r.clock.Step(2 * drainAfter)
		r.refuse(a[0], "n1", "n2")
		r.after(time.Hour)
		r.refuse(b[0], "n2", "n3")
		r.want("the older one", map[string]string{"n2": "gang other/b", "n3": "gang other/b"})
		r.after(drainFor - time.Hour)
		r.want("n2 was kept for the longest time", nothing)
		r.refuse(a[0], "n1", "n4")
		r.want("it was not its doing", map[string]string{"n1": "gang ns/a", "n4": "gang ns/a"})
	})
	t.Run("gangs of several priorities of one namespace", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnv(t)
		a, b := r.gang("a", 0, 0), r.gang("b", 1, 0)
		r.clock.Step(drainAfter)
		r.refuse(a[0], "n1")
		r.after(drainFor - time.Hour)
		r.refuse(b[0], "n2")
		r.gone("a")
		r.want("one is gone", map[string]string{"n2": "gang ns/b"})
		r.after(time.Hour)
		r.want("the namespace's time is over", nothing)
		if from, _ := r.refuse(b[0], "n3"); !from.Equal(r.clock.Now().Add(drainFor)) {
			t.Errorf("places are kept for it from %v", from)
		}
	})
	t.Run("without end", func(t *testing.T) {
		t.Parallel()
		r := newDrainEnvWith(t, Config{DrainAfter: drainAfter, DrainShare: 50, DrainTotalShare: 75})
		a := r.gang("a", 0, 0)
		r.clock.Step(drainAfter)
		if _, text := r.refuse(a[0], "n1"); strings.Contains(text, "until") {
			t.Errorf("it says %q", text)
		}
		r.after(1000 * time.Hour)
		r.want("it waits", map[string]string{"n1": "gang ns/a"})
		r.gone("a")
		r.refuse(r.gang("next", 0, time.Minute)[0], "n1")
		r.want("the next one", map[string]string{"n1": "gang ns/next"})
	})
}

// TestRandomDrains has gangs of some namespaces come, wait, be placed and go. Places are kept on no more
// nodes than the shares allow, for no longer than the longest time, and after a time in vain not kept for
// as long; and a pod that requests no kept resource is never kept out.
func TestRandomDrains(t *testing.T) {
	t.Parallel()
	const (
		longest, nodes, share, total = 40 * time.Minute, 10, 4, 6
		steps                        = 4000
	)
	begun, over := 0, 0
	for seed := range uint64(8) {
		r := newDrainEnvWith(t, Config{DrainAfter: time.Minute, DrainFor: longest, DrainShare: 40, DrainTotalShare: 60})
		x := &drainWatch{drainEnv: r, chaos: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]time.Time{}, open: map[string]time.Time{}, holders: map[string]time.Time{}}
		gangs := map[string][]*v1.Pod{}
		for step := range steps {
			name := strconv.Itoa(x.chaos.IntN(6))
			namespace := fmt.Sprint("team-", name[0]%3)
			placedOn := map[string]bool{}
			switch pods := gangs[name]; {
			case x.chaos.IntN(2) == 0:
				r.after(time.Duration(1+x.chaos.IntN(2)) * time.Minute)
			case pods == nil:
				gangs[name] = r.gangOf(namespace, name, int32(x.chaos.IntN(3)), r.clock.Now().Sub(time.Unix(0, 0)))
			case x.chaos.IntN(20) == 0:
				r.gone(name)
				gangs[name] = nil
			case x.chaos.IntN(12) == 0:
				on := []string{x.node(), x.node()}
				placedOn[on[0]], placedOn[on[1]] = true, true
				delete(x.holders, namespace)
				r.bound(pods, on...)
				r.gone(name)
				gangs[name] = nil
			default:
				var on []string
				for range 1 + x.chaos.IntN(5) {
					on = append(on, x.node())
				}
				slices.Sort(on)
				n := needOn(slices.Compact(on)...)
				for _, p := range n.Places {
					p.Way = []Way{Others, Others, Nobody, Own}[x.chaos.IntN(4)]
				}
				r.refuseWith(pods[0], n)
			}
			b, o := x.check(t, fmt.Sprintf("seed %d, step %d", seed, step), placedOn, share, total, longest)
			begun, over = begun+b, over+o
		}
		for name := range gangs {
			r.gone(name)
		}
		if r.want("all are gone", map[string]string{}); len(r.gangs.holds.drains) > 0 {
			t.Errorf("seed %d: %d drains are left", seed, len(r.gangs.holds.drains))
		}
		r.gangOf("team-0", "last", 0, 0)
		r.after(2 * longest)
		if n := len(r.gangs.holds.nodes) + len(r.gangs.holds.holders); n > 0 {
			t.Errorf("seed %d: %d times are remembered", seed, n)
		}
	}
	if begun < 500 || over < 20 {
		t.Errorf("places were kept on nodes %d times, and %d times for the longest time", begun, over)
	}
	t.Logf("places were kept on nodes %d times, and %d times for the longest time", begun, over)
}

// drainWatch checks the kept places.
type drainWatch struct {
	*drainEnv
	chaos   *rand.Rand
	nodes   map[string]time.Time // since when places are kept
	open    map[string]time.Time // until when no places may be kept
	holders map[string]time.Time // since when places are kept for a namespace, or its last gang was placed
}

func (x *drainWatch) node() string { return fmt.Sprint("n", x.chaos.IntN(10)) }

// check returns on how many nodes places began to be kept, and ended to be after the longest time.
func (x *drainWatch) check(t *testing.T, when string, placedOn map[string]bool, share, total int, longest time.Duration) (begun, over int) {
	t.Helper()
	now, of := x.clock.Now(), map[string]int{}
	var closed candidates.Closed
	closed.Keep(x.kept)
	have := &framework.Resource{MilliCPU: 4000, ScalarResources: map[v1.ResourceName]int64{gpu: 8}}
	used := &framework.Resource{ScalarResources: map[v1.ResourceName]int64{}}
	pod := schedtest.Pod("p").Created(now.Add(time.Hour)).Priority(-1).Obj()
	for node, places := range x.kept {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(places[0].Gang, "gang "), "/")
		of[namespace]++
		if until := x.open[node]; now.Before(until) {
			t.Fatalf("%s: something is kept on %s, which is to be open until %v", when, node, until)
		}
		if _, ok := x.nodes[node]; !ok {
			x.nodes[node] = now
			begun++
		}
		use := &candidates.Use{Have: have, Used: used}
		if k, _ := closed.KeptFrom(pod, &podrequest.Request{MilliCPU: 4000}, node, use); k != nil {
			t.Fatalf("%s: a pod without GPUs is kept off %s", when, node)
		}
		if k, _ := closed.KeptFrom(pod, &podrequest.Request{Scalars: map[v1.ResourceName]int64{gpu: 1}}, node, use); k == nil {
			t.Fatalf("%s: a younger pod with a GPU is not kept off %s", when, node)
		}
	}
	for node, since := range maps.Clone(x.nodes) {
		if len(x.kept[node]) > 0 {
			if now.Sub(since) >= longest {
				t.Fatalf("%s: something is kept on %s since %v", when, node, since)
			}
			continue
		}
		delete(x.nodes, node)
		if !placedOn[node] {
			x.open[node] = now.Add(now.Sub(since))
		}
		if now.Sub(since) >= longest {
			over++
		}
	}
	all := 0
	for namespace, n := range of {
		all += n
		if _, ok := x.holders[namespace]; !ok {
			x.holders[namespace] = now
		}
		if n > share || now.Sub(x.holders[namespace]) >= longest {
			t.Fatalf("%s: for %s something is kept on %d nodes, since %v", when, namespace, n, x.holders[namespace])
		}
	}
	maps.DeleteFunc(x.holders, func(namespace string, _ time.Time) bool { return of[namespace] == 0 })
	if all > total {
		t.Fatalf("%s: something is kept on %d nodes", when, all)
	}
	return begun, over
}
