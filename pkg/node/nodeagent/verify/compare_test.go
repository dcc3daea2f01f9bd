// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const gpu = v1alpha1.DefaultResource

// chosen makes a view of a pod named after its UID. Each choice is
// "container=id,id", with "init:" before it for a plain init container.
func chosen(uid types.UID, choices ...string) *podView {
	p := &podView{uid: uid, namespace: "ns", name: string(uid)}
	if len(choices) == 0 {
		return p
	}
	p.want = &allocation.Allocation{Version: 1, Node: "n", PodUID: uid}
	for _, c := range choices {
		c, init := strings.CutPrefix(c, "init:")
		name, ids, _ := strings.Cut(c, "=")
		p.want.Containers = append(p.want.Containers, allocation.Container{Name: name, Resource: gpu, Init: init, GPUs: strings.Split(ids, ",")})
	}
	return p
}

// rec is a record of "container=id,id".
func rec(uid types.UID, what string) kubelet.Record {
	name, ids, _ := strings.Cut(what, "=")
	return kubelet.Record{PodUID: uid, Container: name, Resource: gpu, IDs: strings.Split(ids, ",")}
}

// lines prints entries one a line.
func lines(entries []entry) []string {
	out := []string{}
	for i := range entries {
		e := &entries[i]
		l := fmt.Sprintf("%s %s %s %s", e.PodUID, e.Container, strings.Join(e.GPUs, ","), e.State)
		if e.with != "" {
			l += " with " + e.with
		}
		out = append(out, l)
	}
	return out
}

func TestCompare(t *testing.T) {
	for name, tc := range map[string]struct {
		pods    []*podView
		records []kubelet.Record
		want    []string
	}{
		"what was chosen is confirmed, in any order": {
			[]*podView{chosen("a", "main=3,1")},
			[]kubelet.Record{rec("a", "main=1,3")},
			[]string{"a main 1,3 confirmed"},
		},
		"no choice is foreign": {
			[]*podView{chosen("a")},
			[]kubelet.Record{rec("a", "main=1")},
			[]string{"a main 1 foreign"},
		},
		"a container that the choice does not name is foreign": {
			[]*podView{chosen("a", "main=1")},
			[]kubelet.Record{rec("a", "main=1"), rec("a", "other=2")},
			[]string{"a main 1 confirmed", "a other 2 foreign"},
		},
		"other devices are reassigned": {
			[]*podView{chosen("a", "main=1,2")},
			[]kubelet.Record{rec("a", "main=1,3")},
			[]string{"a main 1,3 reassigned"},
		},
		"more and fewer devices are reassigned": {
			[]*podView{chosen("a", "main=1,2"), chosen("b", "main=3")},
			[]kubelet.Record{rec("a", "main=1"), rec("b", "main=3,4")},
			[]string{"a main 1 reassigned", "b main 3,4 reassigned"},
		},
		"two pods with each other's are swapped": {
			[]*podView{chosen("a", "main=1,2"), chosen("b", "x=3,4"), chosen("c", "main=5")},
			[]kubelet.Record{rec("a", "main=3,4"), rec("b", "x=1,2"), rec("c", "main=5")},
			[]string{
				"a main 3,4 swapped with container x of pod ns/b", "b x 1,2 swapped with container main of pod ns/a", "c main 5 confirmed",
			},
		},
		"two containers of one pod with each other's are swapped": {
			[]*podView{chosen("a", "init:prep=1,2,3,4", "left=1,2", "right=3,4")},
			[]kubelet.Record{rec("a", "prep=1,2,3,4"), rec("a", "left=3,4"), rec("a", "right=1,2")},
			[]string{
				"a left 3,4 swapped with container right of pod ns/a", "a prep 1,2,3,4 confirmed", "a right 1,2 swapped with container left of pod ns/a",
			},
		},
		"three in a circle are reassigned": {
			[]*podView{chosen("a", "m=1"), chosen("b", "m=2"), chosen("c", "m=3")},
			[]kubelet.Record{rec("a", "m=2"), rec("b", "m=3"), rec("c", "m=1")},
			[]string{"a m 2 reassigned", "b m 3 reassigned", "c m 1 reassigned"},
		},
		"one that took another's choice before it came is reassigned": {
			[]*podView{chosen("a", "m=1"), chosen("b", "m=2")},
			[]kubelet.Record{rec("a", "m=2")},
			[]string{"a m 2 reassigned"},
		},
		"the choice of one without a choice of its own is not swapped": {
			[]*podView{chosen("a", "m=1"), chosen("b")},
			[]kubelet.Record{rec("a", "m=2"), rec("b", "m=1")},
			[]string{"a m 2 reassigned", "b m 1 foreign"},
		},
		"an init container may have any of its pod's": {
			[]*podView{chosen("a", "init:prep=1", "main=1,2")},
			[]kubelet.Record{rec("a", "prep=2"), rec("a", "main=1,2")},
			[]string{"a main 1,2 confirmed", "a prep 2 confirmed"},
		},
		"an init container with another's is reassigned": {
			[]*podView{chosen("a", "init:prep=1", "main=1,2")},
			[]kubelet.Record{rec("a", "prep=3"), rec("a", "main=1,2")},
			[]string{"a main 1,2 confirmed", "a prep 3 reassigned"},
		},
		"an app container with only some of its init container's is reassigned": {
			[]*podView{chosen("a", "init:prep=1,2", "main=1")},
			[]kubelet.Record{rec("a", "prep=1,2"), rec("a", "main=2")},
			[]string{"a main 2 reassigned", "a prep 1,2 confirmed"},
		},
		"shares count as their device": {
			[]*podView{chosen("a", "m=1"), chosen("b", "m=1")},
			[]kubelet.Record{rec("a", "m=1::0"), rec("b", "m=1::7,1::3")},
			[]string{"a m 1 confirmed", "b m 1 confirmed"},
		},
		"records of unknown pods are left out": {
			[]*podView{chosen("a", "m=1")},
			[]kubelet.Record{rec("a", "m=1"), rec("z", "m=9")},
			[]string{"a m 1 confirmed"},
		},
		"a record in several parts is one": {
			[]*podView{chosen("a", "m=1,2")},
			[]kubelet.Record{rec("a", "m=2"), rec("a", "m=1")},
			[]string{"a m 1,2 confirmed"},
		},
		"a pod that is gone keeps what was published": {
			[]*podView{{uid: "a", namespace: "ns", name: "a", states: map[slot]string{{"m", gpu}: v1alpha1.StateConfirmed}}},
			[]kubelet.Record{rec("a", "m=1"), rec("a", "n=2")},
			[]string{"a m 1 confirmed", "a n 2 foreign"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := map[types.UID]*podView{}
			for _, p := range tc.pods {
				pods[p.uid] = p
			}
			if diff := cmp.Diff(tc.want, lines(compare(pods, tc.records))); diff != "" {
				t.Errorf("entries (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestCompareRandom compares random nodes with the definition of the
// states, spelled out pair by pair.
func TestCompareRandom(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		pods, records := randomNode(rng)
		got := compare(pods, records)
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		if diff := cmp.Diff(lines(got), lines(compare(pods, records))); diff != "" {
			t.Fatalf("seed %d: the order of the records matters (-one,+other):\n%s", seed, diff)
		}
		if len(got) != len(records) {
			t.Fatalf("seed %d: %d entries for %d records", seed, len(got), len(records))
		}
		for i := range got {
			e := &got[i]
			seen[e.State]++
			if want := defined(pods, records, e); e.State != want {
				t.Fatalf("seed %d: %s is %s, want %s; all:\n%s", seed, e.label(e.Namespace), e.State, want, strings.Join(lines(got), "\n"))
			}
		}
	}
	for _, s := range []string{v1alpha1.StateConfirmed, v1alpha1.StateSwapped, v1alpha1.StateReassigned, v1alpha1.StateForeign} {
		if seen[s] < 500 {
			t.Errorf("only %d entries were %s: the random nodes miss it", seen[s], s)
		}
	}
}

// randomNode gives each container disjoint devices as choice and then moves some about.
func randomNode(rng *rand.Rand) (map[types.UID]*podView, []kubelet.Record) {
	pods := map[types.UID]*podView{}
	var records []kubelet.Record
	next := 0
	for p := range 1 + rng.IntN(5) {
		uid := types.UID(fmt.Sprintf("p%d", p))
		var choices []string
		for c := range 1 + rng.IntN(2) {
			ids := make([]string, 1+rng.IntN(2))
			for i := range ids {
				ids[i] = fmt.Sprintf("g%02d", next)
				next++
			}
			what := fmt.Sprintf("c%d=%s", c, strings.Join(ids, ","))
			choices = append(choices, what)
			records = append(records, rec(uid, what))
		}
		pods[uid] = chosen(uid, choices...)
		if rng.IntN(5) == 0 {
			pods[uid].want = nil
		} else if rng.IntN(3) == 0 {
			pods[uid].want.Containers[0].Init = true
		}
	}
	for range rng.IntN(4) {
		i, j := rng.IntN(len(records)), rng.IntN(len(records))
		if rng.IntN(3) > 0 {
			records[i].IDs, records[j].IDs = records[j].IDs, records[i].IDs
		} else {
			a, b := slices.Clone(records[i].IDs), slices.Clone(records[j].IDs)
			if i != j {
				a[0], b[0] = b[0], a[0]
			}
			slices.Sort(a)
			slices.Sort(b)
			records[i].IDs, records[j].IDs = a, b
		}
	}
	return pods, records
}

func choiceIn(pods map[types.UID]*podView, r *kubelet.Record) (ids []string, init bool) {
	if a := pods[r.PodUID].want; a != nil {
		for _, c := range a.Containers {
			if c.Name == r.Container {
				return c.GPUs, c.Init
			}
		}
	}
	return nil, false
}

func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) })
}

// defined is the state of an entry by its definition.
func defined(pods map[types.UID]*podView, records []kubelet.Record, e *entry) string {
	self := slices.IndexFunc(records, func(r kubelet.Record) bool { return r.PodUID == e.PodUID && r.Container == e.Container })
	off := func(r *kubelet.Record) bool {
		want, init := choiceIn(pods, r)
		if want == nil || sameSet(want, r.IDs) {
			return false
		}
		return !init || len(r.IDs) != len(want) ||
			slices.ContainsFunc(r.IDs, func(id string) bool { return !slices.Contains(pods[r.PodUID].want.GPUs(gpu), id) })
	}
	r := &records[self]
	want, _ := choiceIn(pods, r)
	switch {
	case want == nil:
		return v1alpha1.StateForeign
	case !off(r):
		return v1alpha1.StateConfirmed
	}
	for i := range records {
		other, _ := choiceIn(pods, &records[i])
		if i != self && off(&records[i]) && sameSet(other, r.IDs) && sameSet(want, records[i].IDs) {
			return v1alpha1.StateSwapped
		}
	}
	return v1alpha1.StateReassigned
}

// TestLabel: people of another namespace do not learn the names of a pod.
func TestLabel(t *testing.T) {
	e := &entry{Allocation: v1alpha1.Allocation{Namespace: "ns", Pod: "secret", Container: "main"}}
	if got, want := e.label("ns"), "container main of pod ns/secret"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := e.label("other"), "a pod of another namespace"; got != want {
		t.Errorf("in another namespace %q, want %q", got, want)
	}
}
