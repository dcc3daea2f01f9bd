// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// FuzzRead reads gangs with arbitrary topology requests of a group and a member: the values are inside
// their bounds, a fault names the object and field, and messages stay short.
func FuzzRead(f *testing.F) {
	keys := append(InputKeys(), kueueCountKey, kueueRequiredKey, kueuePreferredKey, kueueSliceKey, kueueSliceSizeKey, "nvtopo.dev/other")
	for i, v := range []string{"same-switch", "rack", "4", "24h", "name", "1e9", "-1", "", "\x00", "0x10", "9223372036854775807h", "\u202e"} {
		f.Add(uint8(i), v, uint8(i+1), v, int32(i))
	}
	f.Fuzz(func(t *testing.T, one uint8, first string, other uint8, second string, minimum int32) {
		k1, k2 := keys[int(one)%len(keys)], keys[int(other)%len(keys)]
		for _, g := range []*Gang{
			Read(groupKey, podGroup(minimum, texts{k1: first}), []*v1.Pod{member("a", annotate(k2, second)), member("b", annotate(k1, second))}),
			Read(Key{SourceAnnotation, "ns", "g"}, nil, []*v1.Pod{member("a", plain("2"), annotate(k1, first), annotate(k2, second)), member("b", plain("2"), annotate(k1, second))}),
			Read(Key{SourceKueue, "ns", "g"}, nil, []*v1.Pod{member("a", kueue("2"), annotate(k1, first), annotate(k2, second))}),
		} {
			checkGang(t, g)
		}
	})
}

func checkGang(t *testing.T, g *Gang) {
	t.Helper()
	w := g.Wishes
	switch {
	case g.Minimum < 1 || g.Minimum > MaxMembers || g.Size < 0 || g.Size > MaxMembers:
		t.Fatalf("minimum %d, size %d", g.Minimum, g.Size)
	case w.SegmentSize < 0 || w.SegmentSize > MaxMembers || w.MaxPerDomain < 0 || w.MaxPerDomain > MaxMembers:
		t.Fatalf("%+v", w)
	case w.Patience < 0 || w.Patience > MaxPatience || g.MemberWait < 0 || g.MemberWait > MaxPatience:
		t.Fatalf("patience %v, timeout %v", w.Patience, g.MemberWait)
	case g.Admitted && w.Patience > 0:
		t.Fatal("an admitted gang waits")
	}
	if g.Err == nil {
		checkPlaceable(t, g)
	} else if m := g.Err.Error(); !strings.Contains(m, "ns/") || !strings.Contains(m, ": ") || len(m) > 8192 {
		t.Fatalf("fault %q", m)
	}
	for _, m := range g.Warnings {
		if !strings.Contains(m, "ns/") || len(m) > 1024 {
			t.Fatalf("warning %q", m)
		}
	}
}

// checkPlaceable passes the topology request to the planner: it may refuse levels, and nothing else that
// does not depend on the members.
func checkPlaceable(t *testing.T, g *Gang) {
	t.Helper()
	tree, _, err := fabric.NewTree(&fabric.Spec{Levels: []fabric.Level{{Name: "rack"}}, Nodes: []fabric.NodePath{{Node: "n", Path: []string{"r"}}}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := g.WishesIn([]Level{{"rack", "topology.kubernetes.io/rack"}})
	if err != nil {
		return
	}
	n := max(1, w.SegmentSize)
	r := &fabric.Request{Shapes: []fabric.Shape{{Nodes: []fabric.Supply{{Slots: fabric.Unlinked(1)}}}}, Members: make([]fabric.Member, n)}
	w.Apply(r)
	_, err = fabric.Place(tree, r)
	var none *fabric.UnplaceableError
	if err == nil || errors.As(err, &none) {
		return
	}
	for _, expected := range []string{"members cannot be spread over", "segments on one node"} {
		if strings.Contains(err.Error(), expected) {
			return
		}
	}
	t.Fatalf("the planner refuses %+v: %v", w, err)
}

// FuzzMembers gives members arbitrary numbers: each live one occurs once, and ranks ascend.
func FuzzMembers(f *testing.F) {
	f.Add("3 0 1 1 x", uint8(0), uint16(0))
	f.Add("0 1 2", uint8(5), uint16(7))
	f.Add("16383 16382 1048576 0", uint8(2), uint16(3))
	f.Fuzz(func(t *testing.T, indices string, boundOnes uint8, flags uint16) {
		var pods []*v1.Pod
		for i, v := range strings.SplitN(indices, " ", 20) {
			p := member(fmt.Sprint("p-", i), label([]string{podIndexLabel, lwsWorkerLabel, kubeflowIndexLabel}[int(flags)%3], v))
			if boundOnes>>(i%8)&1 == 1 {
				p.Spec.NodeName = "n"
				p.Annotations[RankKey] = v
			}
			if flags>>(i%16)&1 == 1 {
				p.Status.Phase = v1.PodFailed
			}
			pods = append(pods, p)
		}
		for _, byName := range []bool{false, true} {
			m := membersOf(pods, byName)
			seen := map[*v1.Pod]bool{}
			for i, p := range m.Live {
				if seen[p] || p.Status.Phase == v1.PodFailed || m.Ranks[i] < 0 || i > 0 && m.Ranks[i] <= m.Ranks[i-1] {
					t.Fatalf("%q: %q have ranks %d", indices, names(m.Live), m.Ranks)
				}
				seen[p] = true
			}
			for _, p := range pods {
				if !seen[p] && p.Status.Phase != v1.PodFailed {
					t.Fatalf("%q: %s is left out", indices, p.Name)
				}
			}
		}
	})
}

// FuzzState: a state that was read is written equal to its text.
func FuzzState(f *testing.F) {
	f.Add(`{"attempt":3,"whole":false}`)
	f.Add(`{"attempt":9223372036854775807,"whole":true}`)
	f.Add(`{"attempt":1e2,"whole":false}`)
	f.Fuzz(func(t *testing.T, v string) {
		if s, err := ParseState(v); err == nil && (s.Encode() != v || s.Attempt < 1) {
			t.Fatalf("%q is read as %+v", v, s)
		}
	})
}

// FuzzPlacement: a placement that was read is the same after it is written.
func FuzzPlacement(f *testing.F) {
	v, err := samplePlacement().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(v)
	f.Add(`{"level":"x","estimateMs":{"ring":1e309}}`)
	f.Add(`{"level":"x","estimateMs":null,"domains":{"":null}}`)
	f.Fuzz(func(t *testing.T, v string) {
		p, err := ParsePlacement(v)
		if err != nil {
			return
		}
		w, err := p.Encode()
		if err != nil {
			return // a short form of the read one may still be longer than a written one
		}
		again, err := ParsePlacement(w)
		if err != nil || math.IsNaN(float64(again.Estimate.Ring)) {
			t.Fatalf("%q: %v", w, err)
		}
		if len(again.Domains) == len(p.Domains) && !cmp.Equal(p, again) {
			t.Fatalf("%s", cmp.Diff(p, again))
		}
	})
}
