// SPDX-License-Identifier: Apache-2.0

package answer_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfindertest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// Short names of what podfindertest has.
const gpu = podfindertest.GPU

var (
	asks       = podfindertest.Asks
	newFacts   = podfindertest.Facts
	gpus       = podfindertest.GPUs
	including  = podfindertest.Including
	initAsks   = podfindertest.InitAsks
	testPod    = podfindertest.Pod
	recordedAs = podfindertest.RecordedAs
	settle     = podfindertest.Settle
	dgxTables  = podfindertest.Tables
	wanting    = podfindertest.Wanting
	without    = podfindertest.Without
)

// asking is an asker that should get want.
func asking(c podfinder.Container, want ...string) *podfinder.Asker {
	p := testPod(1, c)
	a := &podfinder.Asker{Pod: p, Container: &p.Containers[0]}
	if len(want) > 0 {
		a.Want = question.Sorted(want)
	}
	return a
}

func TestDecide(t *testing.T) {
	tables := dgxTables(t)
	held := func(string) (string, bool) { return "is held by container main of pod ns/p2", false }
	filtered := func(string) (string, bool) { return "is not offered", true }
	ids := func(names ...string) question.Set { return question.SetOf(names) }
	cases := map[string]struct {
		offer        answer.Offer
		want         []string
		wantResult   string
		wantNarrowed []string // what the inner plugin may choose from
		wantMust     []string
		wantErr      string
	}{
		"what was chosen is on offer": {
			offer: answer.Offer{Question: wanting(2), Who: asking(asks("c", 2), gpus(3, 6)...)}, want: gpus(3, 6), wantResult: answer.ResultSteered,
		},
		"what was chosen, with a device that kubelet has taken": {
			offer: answer.Offer{Question: including(wanting(2), gpus(6)...), Who: asking(asks("c", 2), gpus(3, 6)...)},
			want:  gpus(3, 6), wantResult: answer.ResultSteered,
		},
		"devices that are shared: a free replica of each": {
			offer: answer.Offer{
				Question: question.New(gpu, []string{"GPU-0::1", "GPU-0::2", "GPU-1::0", "GPU-1::3", "GPU-2::0"}, []string{"GPU-1::3"}, 2),
				Who:      asking(asks("c", 2), gpus(0, 1)...),
			},
			want: []string{"GPU-0::1", "GPU-1::3"}, wantResult: answer.ResultSteered,
		},
		"6.5 an init container passed on another of the pod's devices": {
			offer: answer.Offer{Question: including(wanting(2), gpus(1)...), Who: asking(asks("b", 2), gpus(2, 3)...), Own: ids(gpus(1, 2, 3)...), Why: filtered},
			want:  gpus(1, 2), wantResult: answer.ResultSteered,
		},
		"6.5 but not what a later container of the pod is to keep": {
			offer: answer.Offer{
				Question: without(wanting(1), gpus(2)...), Who: asking(asks("b", 1), gpus(2)...), Own: ids(gpus(2, 3)...), Later: ids(gpus(3)...),
				Promised: ids(gpus(0)...), Tables: tables, Why: held,
			},
			want: gpus(1), wantResult: answer.ResultConflict,
		},
		"6.5 an init container may take what later containers keep": {
			offer: answer.Offer{
				Question: without(wanting(1), gpus(2)...), Who: asking(initAsks("b", 1), gpus(2)...), Own: ids(gpus(2, 3)...), Later: ids(gpus(3)...),
				Why: held,
			},
			want: gpus(3), wantResult: answer.ResultSteered,
		},
		"6.11 a chosen device is held: the best others, none that another pod waits for": {
			offer: answer.Offer{
				Question: without(wanting(2), gpus(0)...), Who: asking(asks("c", 2), gpus(0, 1)...), Promised: ids(gpus(1, 2, 3, 4)...),
				Tables: tables, Why: held,
			},
			want: gpus(6, 7), wantResult: answer.ResultConflict,
		},
		"6.11 with too few others, as few of those that another pod waits for as needed": {
			offer: answer.Offer{
				Question: without(wanting(4), gpus(0)...), Who: asking(asks("c", 4), gpus(0, 1, 2, 3)...), Promised: ids(gpus(1, 2, 3, 4, 5)...),
				Tables: tables, Why: held,
			},
			want: gpus(4, 5, 6, 7), wantResult: answer.ResultConflict,
		},
		"6.11 in strict mode an error names device and holder": {
			offer:      answer.Offer{Question: without(wanting(2), gpus(0)...), Who: asking(asks("c", 2), gpus(0, 1)...), Strict: true, Why: held},
			wantResult: answer.ResultRefused, wantErr: "container c of pod ns/p1 cannot get the devices chosen for it: GPU-0 is held by container main of pod ns/p2",
		},
		"7 kubelet's topology manager leaves a chosen device out": {
			offer: answer.Offer{Question: without(wanting(1), gpus(0, 1, 2, 3)...), Who: asking(asks("c", 1), gpus(0)...), Tables: tables, Why: filtered},
			want:  gpus(4), wantResult: answer.ResultForced,
		},
		"7 kubelet has taken other devices than the chosen": {
			offer: answer.Offer{Question: including(wanting(2), gpus(7)...), Who: asking(asks("c", 2), gpus(0, 1)...), Tables: tables, Why: filtered},
			want:  gpus(6, 7), wantResult: answer.ResultForced,
		},
		"conflict without a graph: the inner plugin is asked, else the first ids": {
			offer: answer.Offer{
				Question: without(wanting(2), gpus(0)...), Who: asking(asks("c", 2), gpus(0, 1)...), Promised: ids(gpus(2, 3)...), Why: held,
			},
			want: gpus(1, 4), wantResult: answer.ResultConflict, wantNarrowed: gpus(1, 4, 5, 6, 7),
		},
		"6.15 a foreign pod is kept off what others wait for": {
			offer: answer.Offer{Question: wanting(2), Who: asking(asks("c", 2)), Promised: ids(gpus(0, 1, 2, 3)...), Tables: tables},
			want:  gpus(4, 5), wantResult: answer.ResultForeign, wantNarrowed: gpus(4, 5, 6, 7),
		},
		"6.15 nobody was found: it is foreign": {
			offer: answer.Offer{Question: wanting(2), Promised: ids(gpus(0, 1, 2, 3)...), Tables: tables},
			want:  gpus(4, 5), wantResult: answer.ResultForeign, wantNarrowed: gpus(4, 5, 6, 7),
		},
		"6.15 with nothing left to choose the plugin is not asked": {
			offer: answer.Offer{Question: wanting(4), Promised: ids(gpus(0, 2, 4, 6)...)}, want: gpus(1, 3, 5, 7), wantResult: answer.ResultForeign,
		},
		"6.15 a foreign pod that needs more takes all else first": {
			offer: answer.Offer{Question: wanting(6), Promised: ids(gpus(0, 2, 4, 6)...), Tables: tables},
			want:  gpus(0, 1, 2, 3, 5, 7), wantResult: answer.ResultForeign, wantNarrowed: gpus(0, 1, 2, 3, 4, 5, 6, 7), wantMust: gpus(1, 3, 5, 7),
		},
		"6.16 what kubelet offers although it is held is taken last": {
			offer: answer.Offer{Question: wanting(2), Held: ids(gpus(0, 1, 2)...), Promised: ids(gpus(3, 4, 5)...), Tables: tables},
			want:  gpus(6, 7), wantResult: answer.ResultForeign,
		},
		"6.8 what runs without a record is not given to the pod it was chosen for next": {
			offer: answer.Offer{Question: wanting(2), Who: asking(asks("c", 2), gpus(1, 2)...), InUse: ids(gpus(0, 1)...), Tables: tables, Why: held},
			want:  gpus(2, 3), wantResult: answer.ResultConflict,
		},
		"6.8 nor to a foreign one": {
			offer: answer.Offer{Question: wanting(2), InUse: ids(gpus(0, 1)...), Promised: ids(gpus(0, 1, 2, 3, 4, 5)...), Tables: tables},
			want:  gpus(6, 7), wantResult: answer.ResultForeign,
		},
		"6.8 and if nothing else is left, to nobody": {
			offer:      answer.Offer{Question: wanting(7), InUse: ids(gpus(0, 1)...), Promised: ids(gpus(0, 1)...)},
			wantResult: answer.ResultRefused, wantErr: "only 6 of the 8 devices that kubelet offers are free",
		},
		"sharing was switched on: no replica of a whole device that is in use": {
			offer: answer.Offer{Question: question.New(gpu, []string{"GPU-0::0", "GPU-0::1", "GPU-1::0"}, nil, 1), InUse: ids("GPU-0")},
			want:  []string{"GPU-1::0"}, wantResult: answer.ResultForeign,
		},
		"sharing was switched on: nothing else is left": {
			offer:      answer.Offer{Question: question.New(gpu, []string{"GPU-0::0", "GPU-0::1"}, nil, 1), InUse: ids("GPU-0")},
			wantResult: answer.ResultRefused, wantErr: "only 0 of the 2 devices that kubelet offers are free",
		},
		"sharing was switched off: no device of which a replica is in use": {
			offer: answer.Offer{Question: question.New(gpu, gpus(0, 1), nil, 1), InUse: ids("GPU-0::1")}, want: gpus(1), wantResult: answer.ResultForeign,
		},
		"sharing was switched off: nothing else is left": {
			offer:      answer.Offer{Question: question.New(gpu, gpus(0), nil, 1), InUse: ids("GPU-0::1")},
			wantResult: answer.ResultRefused, wantErr: "only 0 of the 1 devices that kubelet offers are free",
		},
		"a replica beside one that is in use": {
			offer: answer.Offer{Question: question.New(gpu, []string{"GPU-0::0", "GPU-0::1"}, nil, 1), InUse: ids("GPU-0::1")},
			want:  []string{"GPU-0::0"}, wantResult: answer.ResultForeign,
		},
		"devices the graph does not know are still given out": {
			offer: answer.Offer{Question: question.New(gpu, []string{"MIG-b", "MIG-a", "MIG-c"}, nil, 2), Tables: tables},
			want:  []string{"MIG-a", "MIG-b"}, wantResult: answer.ResultForeign, wantNarrowed: []string{"MIG-a", "MIG-b", "MIG-c"},
		},
		"more replicas than devices": {
			offer: answer.Offer{Question: question.New(gpu, []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"}, nil, 3), Tables: tables},
			want:  []string{"GPU-0::0", "GPU-0::1", "GPU-1::0"}, wantResult: answer.ResultForeign,
			wantNarrowed: []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"},
		},
		"a question that cannot be answered": {
			offer: answer.Offer{Question: question.New(gpu, gpus(1), nil, 2)}, wantResult: answer.ResultRefused, wantErr: "2 devices asked for, 0 of them given, out of 1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := answer.Decide(tc.offer)
			if !slices.Equal(d.IDs, tc.want) || d.Result != tc.wantResult {
				t.Errorf("ids %v, %s; want %v, %s", d.IDs, d.Result, tc.want, tc.wantResult)
			}
			switch {
			case (d.Err != nil) != (tc.wantErr != ""):
				t.Errorf("error %v, want %q", d.Err, tc.wantErr)
			case d.Err != nil && !strings.Contains(d.Err.Error(), tc.wantErr):
				t.Errorf("error %v, want %q in it", d.Err, tc.wantErr)
			case d.Err != nil && tc.offer.Strict && status.Code(d.Err) != codes.FailedPrecondition:
				t.Errorf("code %v, want FailedPrecondition", status.Code(d.Err))
			}
			if (d.Narrowed != nil) != (tc.wantNarrowed != nil) {
				t.Fatalf("asks the plugin: %v, want %v", d.Narrowed, tc.wantNarrowed)
			}
			if n := d.Narrowed; n != nil && (!slices.Equal(n.Offered.Sorted(), tc.wantNarrowed) || !slices.Equal(n.Must, tc.wantMust) || !n.Valid(d.IDs)) {
				t.Errorf("asks the plugin for %v with %v; want %v with %v", n.Offered.Sorted(), n.Must, tc.wantNarrowed, tc.wantMust)
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
	tables := dgxTables(f)
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
		fa := newFacts(question.New(gpu, offered, some(offered, size), size))
		w := podfindertest.World{Kubelet: map[string]map[string][]string{}, Deaf: rnd.IntN(5) == 0}
		for i := range int(pods % 16) {
			var cs []podfinder.Container
			for j := range 1 + rnd.IntN(3) {
				c := asks(string(rune('a'+j)), 1+rnd.IntN(3))
				if want := some(all, 3); len(want) > 0 {
					c.Limits[gpu], c.Want[gpu] = len(want), question.Sorted(want)
				}
				c.Plain, c.Running = rnd.IntN(4) == 0, rnd.IntN(4) == 0
				cs = append(cs, c)
			}
			p := testPod(i, cs...)
			p.Deleting, p.Started, p.Terminal, p.Chosen = rnd.IntN(6) == 0, rnd.IntN(4) == 0, rnd.IntN(8) == 0, rnd.IntN(6) > 0
			if rnd.IntN(6) == 0 {
				p.Reads = []string{"nvtopo.dev/gpu-ids"}
			}
			fa.Pods = append(fa.Pods, p)
			if rnd.IntN(2) == 0 {
				w.Kubelet[p.Name] = map[string][]string{"a": given(some(all, 2)), "b": nil}
			}
			if ids := given(some(all, 3)); len(ids) > 0 && rnd.IntN(3) == 0 {
				recordedAs(i, "a", question.Sorted(ids)...)(fa)
			}
			fa.Claimed[podfinder.ContainerRef{UID: p.UID, Container: "a"}] = rnd.IntN(6) == 0
		}
		if rnd.IntN(4) == 0 {
			fa.Recorded = nil
		}
		who, _, _ := settle(t, fa, w)
		o := answer.NewOffer(fa, who, false, nil)
		if rnd.IntN(2) == 0 {
			o.Tables = tables
		}
		d := answer.Decide(o)
		taken := func(id string) bool {
			for used := range o.InUse {
				d, replica, shared := strings.Cut(id, "::")
				usedDevice, usedReplica, usedShared := strings.Cut(used, "::")
				if d == usedDevice && (shared != usedShared || replica == usedReplica) {
					return true
				}
			}
			return false
		}
		free := question.SetOf(slices.DeleteFunc(fa.Question.Offered.Sorted(), taken), fa.Question.Must)
		exact := who != nil && who.Want != nil && !slices.ContainsFunc(who.Want, taken) && fa.Question.Offered.HasAll(who.Want) && question.SetOf(who.Want).HasAll(fa.Question.Must)
		switch {
		case d.Err != nil:
			if exact || !o.Strict && len(free) >= size {
				t.Fatalf("refused: %v", d.Err)
			}
		case !fa.Question.Valid(d.IDs) || !slices.IsSorted(d.IDs):
			t.Fatalf("answer %v to %d out of %v with %v", d.IDs, size, fa.Question.Offered.Sorted(), fa.Question.Must)
		case slices.ContainsFunc(d.IDs, func(id string) bool { return fa.Kept(who)[id] != "" && !slices.Contains(fa.Question.Must, id) }):
			t.Fatalf("answer %v, of which other containers of the pod have %v", d.IDs, fa.Kept(who))
		case !free.HasAll(d.IDs):
			t.Fatalf("answer %v, but of what is offered only %v is free", d.IDs, free.Sorted())
		case exact && !slices.Equal(d.IDs, who.Want):
			t.Fatalf("answer %v, but %v was chosen and is on offer", d.IDs, who.Want)
		case d.Narrowed != nil && (!d.Narrowed.Valid(d.IDs) || !fa.Question.Offered.HasAll(d.Narrowed.Offered.Sorted()) || !question.SetOf(d.Narrowed.Must).HasAll(fa.Question.Must)):
			t.Fatalf("the plugin is asked for %v with %v, which is no part of the question", d.Narrowed.Offered.Sorted(), d.Narrowed.Must)
		}
	})
}

// TestRandomSharing: two pods never share. Pods are served one after another, in random order and
// with random sets, all through decide; no device is given twice.
func TestRandomSharing(t *testing.T) {
	tables := dgxTables(t)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		f := newFacts(question.Question{})
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
			f.Pods = append(f.Pods, testPod(i, asks("main", n, chosen...)))
		}
		given, foreignGotTheirs := question.Set{}, false
		known := map[string]map[string][]string{}
		for _, i := range rnd.Perm(len(f.Pods)) {
			p := f.Pods[i]
			known[p.Name] = map[string][]string{"main": nil}
			f.Question = without(wanting(p.Containers[0].Limits[gpu]), given.Sorted()...)
			f.Answers, f.Listed = map[types.UID]podfinder.Answer{}, false
			who, _, _ := settle(t, f, podfindertest.World{Kubelet: known})
			if who == nil || who.Pod != p {
				t.Fatalf("seed %d: found %v, want %s", seed, who, p.Name)
			}
			o := answer.NewOffer(f, who, false, nil)
			o.Tables = tables
			d := answer.Decide(o)
			if d.Err != nil || given.HasAny(d.IDs) || len(d.IDs) != f.Question.Size {
				t.Fatalf("seed %d: pod %s gets %v (%v) after %v", seed, p.Name, d.IDs, d.Err, given.Sorted())
			}
			if who.Want != nil && !slices.Equal(who.Want, d.IDs) {
				t.Errorf("seed %d: pod %s gets %v, want %v; foreign pods took them", seed, p.Name, d.IDs, who.Want)
			}
			foreignGotTheirs = foreignGotTheirs || who.Want == nil && o.Promised.HasAny(d.IDs)
			given.Add(d.IDs)
			known[p.Name]["main"] = d.IDs
			f.Recorded[p.UID] = map[string][]string{"main": d.IDs}
		}
		if foreignGotTheirs {
			t.Errorf("seed %d: a foreign pod was given what another pod waited for", seed)
		}
	}
}
