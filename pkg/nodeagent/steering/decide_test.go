// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

var testLogger = klog.Background()

// asking is an asker that should get want.
func asking(c containerView, want ...string) *asker {
	p := testPod(1, c)
	a := &asker{pod: p, container: &p.containers[0]}
	if len(want) > 0 {
		a.want = sortedCopy(want)
	}
	return a
}

func TestDecide(t *testing.T) {
	g := testGraphs(t)
	held := func(string) (string, bool) { return "is held by container main of pod ns/p2", false }
	filtered := func(string) (string, bool) { return "is not offered", true }
	ids := func(names ...string) idSet { return newSet(names) }
	cases := map[string]struct {
		offer        offer
		want         []string
		wantResult   string
		wantNarrowed []string // what the inner plugin may choose from
		wantMust     []string
		wantErr      string
	}{
		"what was chosen is on offer": {
			offer: offer{q: wanting(2), who: asking(asks("c", 2), gpus(3, 6)...)}, want: gpus(3, 6), wantResult: resultSteered,
		},
		"what was chosen, with a device that kubelet has taken": {
			offer: offer{q: including(wanting(2), gpus(6)...), who: asking(asks("c", 2), gpus(3, 6)...)},
			want:  gpus(3, 6), wantResult: resultSteered,
		},
		"devices that are shared: a free replica of each": {
			offer: offer{
				q:   newQuestion(gpu, []string{"GPU-0::1", "GPU-0::2", "GPU-1::0", "GPU-1::3", "GPU-2::0"}, []string{"GPU-1::3"}, 2),
				who: asking(asks("c", 2), gpus(0, 1)...),
			},
			want: []string{"GPU-0::1", "GPU-1::3"}, wantResult: resultSteered,
		},
		"6.5 an init container passed on another of the pod's devices": {
			offer: offer{q: including(wanting(2), gpus(1)...), who: asking(asks("b", 2), gpus(2, 3)...), own: ids(gpus(1, 2, 3)...), why: filtered},
			want:  gpus(1, 2), wantResult: resultSteered,
		},
		"6.5 but not what a later container of the pod is to keep": {
			offer: offer{
				q: without(wanting(1), gpus(2)...), who: asking(asks("b", 1), gpus(2)...), own: ids(gpus(2, 3)...), later: ids(gpus(3)...),
				reserved: ids(gpus(0)...), tables: g.tables, why: held,
			},
			want: gpus(1), wantResult: resultConflict,
		},
		"6.5 an init container may take what later containers keep": {
			offer: offer{
				q: without(wanting(1), gpus(2)...), who: asking(initAsks("b", 1), gpus(2)...), own: ids(gpus(2, 3)...), later: ids(gpus(3)...),
				why: held,
			},
			want: gpus(3), wantResult: resultSteered,
		},
		"6.11 a chosen device is held: the best others, none that another pod waits for": {
			offer: offer{
				q: without(wanting(2), gpus(0)...), who: asking(asks("c", 2), gpus(0, 1)...), reserved: ids(gpus(1, 2, 3, 4)...),
				tables: g.tables, why: held,
			},
			want: gpus(6, 7), wantResult: resultConflict,
		},
		"6.11 with too few others, as few of those that another pod waits for as needed": {
			offer: offer{
				q: without(wanting(4), gpus(0)...), who: asking(asks("c", 4), gpus(0, 1, 2, 3)...), reserved: ids(gpus(1, 2, 3, 4, 5)...),
				tables: g.tables, why: held,
			},
			want: gpus(4, 5, 6, 7), wantResult: resultConflict,
		},
		"6.11 in strict mode an error names device and holder": {
			offer:      offer{q: without(wanting(2), gpus(0)...), who: asking(asks("c", 2), gpus(0, 1)...), strict: true, why: held},
			wantResult: resultRefused, wantErr: "container c of pod ns/p1 cannot get the devices chosen for it: GPU-0 is held by container main of pod ns/p2",
		},
		"7 kubelet's topology manager leaves a chosen device out": {
			offer: offer{q: without(wanting(1), gpus(0, 1, 2, 3)...), who: asking(asks("c", 1), gpus(0)...), tables: g.tables, why: filtered},
			want:  gpus(4), wantResult: resultForced,
		},
		"7 kubelet has taken other devices than the chosen": {
			offer: offer{q: including(wanting(2), gpus(7)...), who: asking(asks("c", 2), gpus(0, 1)...), tables: g.tables, why: filtered},
			want:  gpus(6, 7), wantResult: resultForced,
		},
		"conflict without a graph: the inner plugin is asked, else the first ids": {
			offer: offer{
				q: without(wanting(2), gpus(0)...), who: asking(asks("c", 2), gpus(0, 1)...), reserved: ids(gpus(2, 3)...), why: held,
			},
			want: gpus(1, 4), wantResult: resultConflict, wantNarrowed: gpus(1, 4, 5, 6, 7),
		},
		"6.15 a foreign pod is kept off what others wait for": {
			offer: offer{q: wanting(2), who: asking(asks("c", 2)), reserved: ids(gpus(0, 1, 2, 3)...), tables: g.tables},
			want:  gpus(4, 5), wantResult: resultForeign, wantNarrowed: gpus(4, 5, 6, 7),
		},
		"6.15 nobody was found: it is foreign": {
			offer: offer{q: wanting(2), reserved: ids(gpus(0, 1, 2, 3)...), tables: g.tables},
			want:  gpus(4, 5), wantResult: resultForeign, wantNarrowed: gpus(4, 5, 6, 7),
		},
		"6.15 with nothing left to choose the plugin is not asked": {
			offer: offer{q: wanting(4), reserved: ids(gpus(0, 2, 4, 6)...)}, want: gpus(1, 3, 5, 7), wantResult: resultForeign,
		},
		"6.15 a foreign pod that needs more takes all else first": {
			offer: offer{q: wanting(6), reserved: ids(gpus(0, 2, 4, 6)...), tables: g.tables},
			want:  gpus(0, 1, 2, 3, 5, 7), wantResult: resultForeign, wantNarrowed: gpus(0, 1, 2, 3, 4, 5, 6, 7), wantMust: gpus(1, 3, 5, 7),
		},
		"6.16 what kubelet offers although it is held is taken last": {
			offer: offer{q: wanting(2), held: ids(gpus(0, 1, 2)...), reserved: ids(gpus(3, 4, 5)...), tables: g.tables},
			want:  gpus(6, 7), wantResult: resultForeign,
		},
		"6.8 what runs without a record is not given to the pod it was chosen for next": {
			offer: offer{q: wanting(2), who: asking(asks("c", 2), gpus(1, 2)...), inUse: ids(gpus(0, 1)...), tables: g.tables, why: held},
			want:  gpus(2, 3), wantResult: resultConflict,
		},
		"6.8 nor to a foreign one": {
			offer: offer{q: wanting(2), inUse: ids(gpus(0, 1)...), reserved: ids(gpus(0, 1, 2, 3, 4, 5)...), tables: g.tables},
			want:  gpus(6, 7), wantResult: resultForeign,
		},
		"6.8 and if nothing else is left, to nobody": {
			offer:      offer{q: wanting(7), inUse: ids(gpus(0, 1)...), reserved: ids(gpus(0, 1)...)},
			wantResult: resultRefused, wantErr: "only 6 of the 8 devices that kubelet offers are free",
		},
		"sharing was switched on: no replica of a whole device that is in use": {
			offer: offer{q: newQuestion(gpu, []string{"GPU-0::0", "GPU-0::1", "GPU-1::0"}, nil, 1), inUse: ids("GPU-0")},
			want:  []string{"GPU-1::0"}, wantResult: resultForeign,
		},
		"sharing was switched on: nothing else is left": {
			offer:      offer{q: newQuestion(gpu, []string{"GPU-0::0", "GPU-0::1"}, nil, 1), inUse: ids("GPU-0")},
			wantResult: resultRefused, wantErr: "only 0 of the 2 devices that kubelet offers are free",
		},
		"sharing was switched off: no device of which a replica is in use": {
			offer: offer{q: newQuestion(gpu, gpus(0, 1), nil, 1), inUse: ids("GPU-0::1")}, want: gpus(1), wantResult: resultForeign,
		},
		"sharing was switched off: nothing else is left": {
			offer:      offer{q: newQuestion(gpu, gpus(0), nil, 1), inUse: ids("GPU-0::1")},
			wantResult: resultRefused, wantErr: "only 0 of the 1 devices that kubelet offers are free",
		},
		"a replica beside one that is in use": {
			offer: offer{q: newQuestion(gpu, []string{"GPU-0::0", "GPU-0::1"}, nil, 1), inUse: ids("GPU-0::1")},
			want:  []string{"GPU-0::0"}, wantResult: resultForeign,
		},
		"devices the graph does not know are still given out": {
			offer: offer{q: newQuestion(gpu, []string{"MIG-b", "MIG-a", "MIG-c"}, nil, 2), tables: g.tables},
			want:  []string{"MIG-a", "MIG-b"}, wantResult: resultForeign, wantNarrowed: []string{"MIG-a", "MIG-b", "MIG-c"},
		},
		"more replicas than devices": {
			offer: offer{q: newQuestion(gpu, []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"}, nil, 3), tables: g.tables},
			want:  []string{"GPU-0::0", "GPU-0::1", "GPU-1::0"}, wantResult: resultForeign,
			wantNarrowed: []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"},
		},
		"a question that cannot be answered": {
			offer: offer{q: newQuestion(gpu, gpus(1), nil, 2)}, wantResult: resultRefused, wantErr: "2 devices asked for, 0 of them given, out of 1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := decide(tc.offer)
			if !slices.Equal(d.ids, tc.want) || d.result != tc.wantResult {
				t.Errorf("ids %v, %s; want %v, %s", d.ids, d.result, tc.want, tc.wantResult)
			}
			switch {
			case (d.err != nil) != (tc.wantErr != ""):
				t.Errorf("error %v, want %q", d.err, tc.wantErr)
			case d.err != nil && !strings.Contains(d.err.Error(), tc.wantErr):
				t.Errorf("error %v, want %q in it", d.err, tc.wantErr)
			case d.err != nil && tc.offer.strict && status.Code(d.err) != codes.FailedPrecondition:
				t.Errorf("code %v, want FailedPrecondition", status.Code(d.err))
			}
			if (d.narrowed != nil) != (tc.wantNarrowed != nil) {
				t.Fatalf("asks the plugin: %v, want %v", d.narrowed, tc.wantNarrowed)
			}
			if n := d.narrowed; n != nil && (!slices.Equal(n.offered.sorted(), tc.wantNarrowed) || !slices.Equal(n.must, tc.wantMust) || !n.valid(d.ids)) {
				t.Errorf("asks the plugin for %v with %v; want %v with %v", n.offered.sorted(), n.must, tc.wantNarrowed, tc.wantMust)
			}
		})
	}
}

// FuzzAnswer: whatever the pods, what was served, what kubelet says and what it
// offers, an answer has the right size, contains what must be taken and nothing
// that is not offered; and a container whose chosen devices are all on offer,
// with what must be taken, gets exactly them. Where the sharing of GPUs was switched,
// what is offered and what was given are replicas or whole GPUs at random. Nothing that
// overlaps what others have is given.
func FuzzAnswer(f *testing.F) {
	const switched = 128 // from so many devices, sharing was switched
	for seed := range uint64(50) {
		f.Add(seed, uint8(8), uint8(5))
		f.Add(seed, uint8(switched+3), uint8(15))
	}
	g := testGraphs(f)
	f.Fuzz(func(t *testing.T, seed uint64, devices, pods uint8) {
		rnd := rand.New(rand.NewPCG(seed, uint64(devices)))
		all := gpus(rnd.Perm(int(devices%12) + 1)...)
		some := func(from []string, most int) []string {
			n := rnd.IntN(min(len(from), most) + 1)
			out := make([]string, 0, n)
			for _, i := range rnd.Perm(len(from))[:n] {
				out = append(out, from[i])
			}
			return out
		}
		offered, given := some(all, len(all)), func(ids []string) []string { return ids }
		if devices >= switched {
			var shared []string
			for _, id := range offered {
				shared = append(shared, [][]string{{id}, {id + "::0"}, {id + "::0", id + "::1"}}[rnd.IntN(3)]...)
			}
			offered = shared
			given = func(ids []string) []string {
				ids = slices.Clone(ids)
				for i := range ids {
					ids[i] += []string{"", "::0", "::1"}[rnd.IntN(3)]
				}
				return ids
			}
		}
		if len(offered) == 0 {
			return
		}
		size := 1 + rnd.IntN(len(offered))
		fa := newFacts(newQuestion(gpu, offered, some(offered, size), size))
		w := world{kubelet: map[string]map[string][]string{}, deaf: rnd.IntN(5) == 0}
		for i := range int(pods % 16) {
			var cs []containerView
			for j := range 1 + rnd.IntN(3) {
				c := asks(string(rune('a'+j)), 1+rnd.IntN(3))
				if want := some(all, 3); len(want) > 0 {
					c.limits[gpu], c.want[gpu] = len(want), sortedCopy(want)
				}
				c.plain, c.running = rnd.IntN(4) == 0, rnd.IntN(4) == 0
				cs = append(cs, c)
			}
			p := testPod(i, cs...)
			p.deleting, p.started, p.terminal, p.chosen = rnd.IntN(6) == 0, rnd.IntN(4) == 0, rnd.IntN(8) == 0, rnd.IntN(6) > 0
			if rnd.IntN(6) == 0 {
				p.reads = []string{"nvtopo.dev/gpu-ids"}
			}
			fa.pods = append(fa.pods, p)
			if rnd.IntN(2) == 0 {
				w.kubelet[p.name] = map[string][]string{"a": given(some(all, 2)), "b": nil}
			}
			if ids := given(some(all, 3)); len(ids) > 0 && rnd.IntN(3) == 0 {
				recordedAs(i, "a", sortedCopy(ids)...)(fa)
			}
			fa.claimed[slot{p.uid, "a"}] = rnd.IntN(6) == 0
		}
		if rnd.IntN(4) == 0 {
			fa.recorded = nil
		}
		who, _, _ := settle(t, fa, w)
		o := offer{q: fa.q, who: who}
		if rnd.IntN(2) == 0 {
			o.tables = g.tables
		}
		o.reserved, o.held = fa.others(who)
		o.inUse = fa.inUse(who)
		if who != nil {
			o.strict = who.pod.trusts()
			o.own, o.later = fa.own(who)
		}
		o.why = func(id string) (string, bool) { return fa.why(id, who, nil) }
		d := decide(o)
		taken := func(id string) bool {
			for used := range o.inUse {
				d, replica, shared := strings.Cut(id, "::")
				usedDevice, usedReplica, usedShared := strings.Cut(used, "::")
				if d == usedDevice && (shared != usedShared || replica == usedReplica) {
					return true
				}
			}
			return false
		}
		free := newSet(slices.DeleteFunc(fa.q.offered.sorted(), taken), fa.q.must)
		exact := who != nil && who.want != nil && !slices.ContainsFunc(who.want, taken) && fa.q.offered.hasAll(who.want) && newSet(who.want).hasAll(fa.q.must)
		switch {
		case d.err != nil:
			if exact || !o.strict && len(free) >= size {
				t.Fatalf("refused: %v", d.err)
			}
		case !fa.q.valid(d.ids) || !slices.IsSorted(d.ids):
			t.Fatalf("answer %v to %d out of %v with %v", d.ids, size, fa.q.offered.sorted(), fa.q.must)
		case slices.ContainsFunc(d.ids, func(id string) bool { return fa.kept(who)[id] != "" && !slices.Contains(fa.q.must, id) }):
			t.Fatalf("answer %v, of which other containers of the pod have %v", d.ids, fa.kept(who))
		case !free.hasAll(d.ids):
			t.Fatalf("answer %v, but of what is offered only %v is free", d.ids, free.sorted())
		case exact && !slices.Equal(d.ids, who.want):
			t.Fatalf("answer %v, but %v was chosen and is on offer", d.ids, who.want)
		case d.narrowed != nil && (!d.narrowed.valid(d.ids) || !fa.q.offered.hasAll(d.narrowed.offered.sorted()) || !newSet(d.narrowed.must).hasAll(fa.q.must)):
			t.Fatalf("the plugin is asked for %v with %v, which is no part of the question", d.narrowed.offered.sorted(), d.narrowed.must)
		}
	})
}

// TestTwoPodsNeverShare: pods are served one after another, in random order and
// with random sets, all through decide; no device is given twice.
func TestTwoPodsNeverShare(t *testing.T) {
	g := testGraphs(t)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		f := newFacts(question{})
		perm, at := gpus(rnd.Perm(8)...), 0
		for i := range 8 {
			n := 1 + rnd.IntN(2)
			if at+n > 8 {
				break
			}
			var chosen []string
			if rnd.IntN(3) > 0 {
				chosen = perm[at : at+n]
			}
			at += n
			f.pods = append(f.pods, testPod(i, asks("main", n, chosen...)))
		}
		given, foreignGotTheirs := idSet{}, false
		known := map[string]map[string][]string{}
		for _, i := range rnd.Perm(len(f.pods)) {
			p := f.pods[i]
			known[p.name] = map[string][]string{"main": nil}
			f.q = without(wanting(p.containers[0].limits[gpu]), given.sorted()...)
			f.answers, f.listed = map[types.UID]answer{}, false
			who, _, _ := settle(t, f, world{kubelet: known})
			if who == nil || who.pod != p {
				t.Fatalf("seed %d: found %v, want %s", seed, who, p.name)
			}
			o := offer{q: f.q, who: who, tables: g.tables, why: func(string) (string, bool) { return "is gone", false }}
			o.own, o.later = f.own(who)
			o.reserved, o.held = f.others(who)
			d := decide(o)
			if d.err != nil || given.hasAny(d.ids) || len(d.ids) != f.q.size {
				t.Fatalf("seed %d: pod %s gets %v (%v) after %v", seed, p.name, d.ids, d.err, given.sorted())
			}
			if who.want != nil && !slices.Equal(who.want, d.ids) {
				t.Errorf("seed %d: pod %s gets %v, want %v; foreign pods took them", seed, p.name, d.ids, who.want)
			}
			foreignGotTheirs = foreignGotTheirs || who.want == nil && o.reserved.hasAny(d.ids)
			given.add(d.ids)
			known[p.name]["main"] = d.ids
			f.recorded[p.uid] = map[string][]string{"main": d.ids}
		}
		if foreignGotTheirs {
			t.Errorf("seed %d: a foreign pod was given what another pod waited for", seed)
		}
	}
}
