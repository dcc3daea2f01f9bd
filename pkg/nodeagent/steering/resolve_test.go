// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const gpu = "nvidia.com/gpu"

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testPod builds a view. The number is its age: greater is younger and bound later.
func testPod(n int, containers ...containerView) *podView {
	name := fmt.Sprintf("p%d", n)
	return &podView{
		uid: types.UID("uid-" + name), namespace: "ns", name: name, created: epoch.Add(time.Duration(n) * time.Second),
		version: uint64(100 + n), containers: containers,
	}
}

// asks is an app container that asks for n GPUs; chosen are the scheduler's.
func asks(name string, n int, chosen ...string) containerView {
	c := containerView{name: name, limits: map[string]int{gpu: n}, want: map[string][]string{}}
	if len(chosen) > 0 {
		c.want[gpu] = sortedCopy(chosen)
	}
	return c
}

func initAsks(name string, n int, chosen ...string) containerView {
	c := asks(name, n, chosen...)
	c.plain = true
	return c
}

func (p *podView) but(change func(*podView)) *podView {
	change(p)
	return p
}

func deleting(p *podView) { p.deleting = true }
func started(p *podView)  { p.started = true }
func terminal(p *podView) { p.terminal = true }

// world is what kubelet would answer and what the API server would list.
type world struct {
	kubelet map[string]map[string][]string // pod name -> container -> ids; a name that is missing is unknown
	live    []*podView                     // nil: as the watch
	deaf    bool                           // kubelet answers nothing
}

func gpus(ids ...int) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprintf("GPU-%d", id)
	}
	return out
}

// surveyed stands for the request that tells of all pods, among the pods asked for.
const surveyed = "all"

// settle drives resolve to its end, as the driver does, and returns who was asked
// for in order.
func settle(t *testing.T, f *facts, w world) (who *asker, asked []string, listed bool) {
	t.Helper()
	for range 1000 {
		v := resolve(f)
		switch {
		case v.ask != nil:
			if _, again := f.answers[v.ask.uid]; again {
				t.Fatalf("asks for %s a second time", v.ask.name)
			}
			asked = append(asked, v.ask.name)
			holds, ok := w.kubelet[v.ask.name]
			switch {
			case w.deaf:
				f.mute = true
			case ok:
				f.answers[v.ask.uid] = answer{holds: holds}
			default:
				f.answers[v.ask.uid] = answer{unknown: true}
			}
		case v.survey:
			asked = append(asked, surveyed)
			f.active = map[types.NamespacedName]bool{}
			for name := range w.kubelet {
				f.active[types.NamespacedName{Namespace: "ns", Name: name}] = true
			}
			f.strike()
		case v.list:
			if f.listed {
				t.Fatal("lists twice")
			}
			f.listed, listed = true, true
			if w.live == nil {
				continue
			}
			for _, p := range w.live {
				f.fresh[p.uid] = !slices.ContainsFunc(f.pods, func(o *podView) bool { return o.uid == p.uid })
			}
			f.pods = w.live
			f.strike()
		default:
			return v.who, asked, listed
		}
	}
	t.Fatal("comes to no end")
	return nil, nil, false
}

func newFacts(q question, pods ...*podView) *facts {
	return &facts{
		q: q, now: epoch.Add(time.Hour), pods: pods, fresh: map[types.UID]bool{}, served: map[types.UID]map[string]servedDevices{},
		recorded: byPod{}, answers: map[types.UID]answer{}, claimed: map[slot]bool{},
	}
}

// q1 is a question for n of the eight GPUs of the node.
func wanting(n int) question { return newQuestion(gpu, gpus(0, 1, 2, 3, 4, 5, 6, 7), nil, n) }

func without(q question, ids ...string) question {
	return newQuestion(q.resource, q.offered.without(newSet(ids)).sorted(), q.must, q.size)
}

func including(q question, must ...string) question {
	return newQuestion(q.resource, q.offered.sorted(), must, q.size)
}

func (f *facts) with(change func(*facts)) *facts {
	change(f)
	return f
}

func recordedAs(n int, container string, ids ...string) func(*facts) {
	return func(f *facts) {
		uid := types.UID(fmt.Sprintf("uid-p%d", n))
		if f.recorded[uid] == nil {
			f.recorded[uid] = map[string][]string{}
		}
		f.recorded[uid][container] = ids
		servedAs(n, container, time.Hour, ids...)(f)
	}
}

func servedAs(n int, container string, ago time.Duration, ids ...string) func(*facts) {
	return func(f *facts) {
		uid := types.UID(fmt.Sprintf("uid-p%d", n))
		if f.served[uid] == nil {
			f.served[uid] = map[string]servedDevices{}
		}
		f.served[uid][container] = servedDevices{IDs: ids, At: f.now.Add(-ago)}
	}
}

func noCheckpoint(f *facts) { f.recorded = nil }

func TestResolve(t *testing.T) {
	type kubelet = map[string]map[string][]string
	two := func(n int, chosen ...string) *podView { return testPod(n, asks("main", 2, chosen...)) }
	cases := map[string]struct {
		facts      *facts
		world      world
		want       string // pod/container, "" for nobody
		wantIDs    []string
		wantSource string
		ambiguous  bool
		wantAsked  []string // nil: not looked at
		wantListed bool
	}{
		"6.1 of pods with equal counts the one kubelet knows asks": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...), two(3, gpus(4, 5)...)),
			world: world{kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceGet,
		},
		"6.1 the oldest is asked for first, and asking stops at it": {
			facts: newFacts(wanting(2), two(3), two(2), two(1)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantSource: sourceGet, wantAsked: []string{"p1"},
		},
		"6.2 admission in another order than creation costs two questions if it is that of binding": {
			facts: newFacts(wanting(2), two(1), two(2), two(4).but(func(p *podView) { p.version = 1 })),
			world: world{kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: sourceGet, wantAsked: []string{"p1", "p4"},
		},
		"6.2 and one once it is known to be that of binding, among any number": {
			facts: newFacts(wanting(2), two(1), two(2), two(3), two(4).but(func(p *podView) { p.version = 1 })).
				with(func(f *facts) { f.bound = true }),
			world: world{kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: sourceGet, wantAsked: []string{"p4"},
		},
		"6.2 in no order it costs three, among any number": {
			facts: newFacts(wanting(2), two(1), two(2), two(3), two(4), two(5), two(6)),
			world: world{kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: sourceGet, wantAsked: []string{"p1", surveyed, "p4"},
		},
		"pods of another size are not asked for": {
			facts: newFacts(wanting(2), testPod(1, asks("main", 1)), testPod(2, asks("main", 4)), two(3)),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}, "p3": {"main": nil}}},
			want:  "p3/main", wantSource: sourceGet, wantAsked: []string{"p3"},
		},
		"pods that ask for another resource, or none, are not asked for": {
			facts: newFacts(wanting(2), testPod(1), testPod(2, containerView{name: "c", limits: map[string]int{"rdma/hca": 2}}), two(3)),
			world: world{kubelet: kubelet{"p3": {"main": nil}}},
			want:  "p3/main", wantSource: sourceGet, wantAsked: []string{"p3"},
		},
		"pods that hold theirs are not asked for": {
			facts: newFacts(wanting(2), two(1), two(2)).with(recordedAs(1, "main", gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p1": {"main": gpus(0, 1)}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: sourceGet, wantAsked: []string{"p2"},
		},
		"pods that have ended are not asked for": {
			facts: newFacts(wanting(2), two(1).but(terminal), two(2)),
			world: world{kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantSource: sourceGet, wantAsked: []string{"p2"},
		},
		"6.3 a pod the watch has not delivered is found in the live list": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p9": {"main": nil}}, live: []*podView{two(1, gpus(0, 1)...), two(9, gpus(6, 7)...)}},
			want:  "p9/main", wantIDs: gpus(6, 7), wantSource: sourceGet, wantAsked: []string{"p1", "p9"}, wantListed: true,
		},
		"6.3 a pod that is in no list is nobody's": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)),
			want:  "", wantListed: true,
		},
		"6.3 on an empty node the list is taken at once": {
			facts: newFacts(wanting(2)), want: "", wantAsked: nil, wantListed: true,
		},
		"6.4 a pod deleted before it was admitted gives way to one that was not": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...).but(deleting), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceGet, wantAsked: []string{"p2"},
		},
		"6.4 a started pod whose record kubelet lost gives way to one that was not started": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...).but(started), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: sourceGet,
		},
		"6.4 a rejected pod whose status has not reached the API is unknown to kubelet": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(0, 1)...)).with(servedAs(1, "main", time.Minute, gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(0, 1), wantSource: sourceGet,
		},
		"6.4 a static pod has no annotation and is found like any other": {
			facts: newFacts(wanting(2), two(1), two(2, gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantSource: sourceGet,
		},
		"6.5 an init container asks before the container": {
			facts: newFacts(wanting(2), testPod(1, initAsks("load", 2, gpus(0, 1)...), asks("main", 2, gpus(0, 1)...))),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/load", wantIDs: gpus(0, 1), wantSource: sourceGet,
		},
		"6.5 after the init container the container asks": {
			facts: newFacts(including(wanting(4), gpus(0, 1)...), testPod(1, initAsks("load", 2, gpus(0, 1)...), asks("main", 4, gpus(0, 1, 2, 3)...))).
				with(recordedAs(1, "load", gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1, 2, 3), wantSource: sourceGet, wantAsked: []string{"p1"},
		},
		"6.5 devices left by an init container tell whose it is before all others": {
			facts: newFacts(including(wanting(4), gpus(0, 1)...), testPod(1, asks("main", 4)), testPod(2, asks("main", 4)),
				testPod(3, initAsks("load", 2), asks("main", 4))).with(recordedAs(3, "load", gpus(0, 1)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p3": {"main": nil}}},
			want:  "p3/main", wantSource: sourceGet, wantAsked: []string{"p3"},
		},
		"6.5 an allocation out of an init container's devices is its pod's, whatever was chosen": {
			facts: newFacts(finalQuestion(gpu, gpus(1, 3)), testPod(1, asks("main", 2, gpus(1, 3)...)),
				testPod(2, initAsks("load", 4, gpus(0, 1, 2, 3)...), asks("a", 2, gpus(0, 1)...), asks("b", 2, gpus(2, 3)...))).
				with(recordedAs(2, "load", gpus(0, 1, 2, 3)...)),
			world: world{kubelet: kubelet{"p2": {"a": nil, "b": nil}}},
			want:  "p2/a", wantIDs: gpus(0, 1), wantSource: sourceGet, wantAsked: []string{"p2"},
		},
		"6.5 a sidecar is shown by kubelet and needs no record": {
			facts: newFacts(wanting(2), testPod(1, asks("proxy", 1), asks("main", 2, gpus(4, 5)...))).with(noCheckpoint).
				with(servedAs(1, "proxy", time.Second, gpus(0)...)),
			world: world{kubelet: kubelet{"p1": {"proxy": gpus(0), "main": nil}}},
			want:  "p1/main", wantIDs: gpus(4, 5), wantSource: sourceGet,
		},
		"6.5 an app container with devices shows that the init containers before were served": {
			facts: newFacts(wanting(2), testPod(1, initAsks("load", 1), asks("a", 2), asks("b", 2, gpus(4, 5)...))).with(noCheckpoint),
			world: world{kubelet: kubelet{"p1": {"a": gpus(0, 1), "b": nil}}},
			want:  "p1/b", wantIDs: gpus(4, 5), wantSource: sourceGet,
		},
		"6.6 devices of another resource do not count": {
			facts: newFacts(wanting(2), testPod(1, containerView{
				name: "main", limits: map[string]int{gpu: 2, "rdma/hca": 1}, want: map[string][]string{gpu: gpus(0, 1)},
			})),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGet,
		},
		"6.8 a container that was served and that kubelet lost asks for what it had": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)).with(servedAs(1, "main", time.Hour, gpus(4, 5)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(4, 5), wantSource: sourceGet, wantListed: true,
		},
		"6.8 a started pod asks when nobody else does": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...).but(started), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGet, wantListed: true,
		},
		"6.8 any container of a started pod may be the one that is restarted": {
			facts: newFacts(wanting(2), testPod(1, asks("a", 1, gpus(0)...), asks("b", 2, gpus(2, 3)...)).but(started)),
			world: world{kubelet: kubelet{"p1": {"a": nil, "b": nil}}},
			want:  "p1/b", wantIDs: gpus(2, 3), wantSource: sourceGet, wantListed: true,
		},
		"6.10 a pod deleted before kubelet admits it is still matched": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...).but(deleting)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGet, wantListed: true,
		},
		"6.10 devices of an earlier pod of the same name are not its successor's": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": gpus(0, 1)}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceGet, wantAsked: []string{"p1", "p2"},
		},
		"6.11 a pod whose device is still held is the one that asks, if kubelet knows no other": {
			facts: newFacts(without(wanting(2), gpus(1)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGet, wantAsked: []string{"p1", "p2"}, wantListed: true,
		},
		"6.14 of two that kubelet knows the one whose devices are on offer asks": {
			facts: newFacts(without(wanting(2), gpus(1)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceGet,
		},
		"6.15 a pod nobody chose for is found too": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2)),
			world: world{kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantSource: sourceGet,
		},
		"6.17 a container that was just answered is not taken for another question": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...).but(started)).
				with(func(f *facts) { f.claimed[slot{"uid-p1", "main"}] = true }),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceGet, ambiguous: true, wantListed: true,
		},
		"6.17 nor is one that was just served, before kubelet shows it": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...).but(started)).
				with(servedAs(1, "main", time.Millisecond, gpus(0, 1)...)).with(func(f *facts) { f.claimed[slot{"uid-p1", "main"}] = true }),
			world: world{kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: sourceGet, ambiguous: true, wantListed: true,
		},
		"6.17 it asks again if there is nobody else": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)).with(func(f *facts) { f.claimed[slot{"uid-p1", "main"}] = true }),
			world: world{kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGet, wantListed: true,
		},
		"the next container of the pod just served is asked for first": {
			facts: newFacts(wanting(2), two(1), two(2), testPod(3, asks("a", 1), asks("b", 2, gpus(4, 5)...))).
				with(recordedAs(3, "a", gpus(0)...)).with(func(f *facts) { f.last = "uid-p3" }),
			world: world{kubelet: kubelet{"p3": {"a": gpus(0), "b": nil}}},
			want:  "p3/b", wantIDs: gpus(4, 5), wantSource: sourceGet, wantAsked: []string{"p3"},
		},
		"an allocation nobody was asked about is first thought to be of who should get exactly that": {
			facts: newFacts(finalQuestion(gpu, gpus(4, 5)), two(1, gpus(0, 1)...), two(2), two(3, gpus(4, 5)...)),
			world: world{kubelet: kubelet{"p3": {"main": nil}}},
			want:  "p3/main", wantIDs: gpus(4, 5), wantSource: sourceGet, wantAsked: []string{"p3"},
		},
		"without answers the only pod without a record asks": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)).with(recordedAs(1, "main", gpus(0, 1)...)),
			world: world{deaf: true},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: sourceCheckpoint,
		},
		"without answers the oldest of several is guessed": {
			facts: newFacts(wanting(2), two(2, gpus(2, 3)...), two(1, gpus(0, 1)...)),
			world: world{deaf: true},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: sourceGuess, ambiguous: true,
		},
		"without answers one that can get its devices is guessed before an older one that cannot": {
			facts: newFacts(without(wanting(2), gpus(0)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: world{deaf: true},
			want:  "p2/main", wantSource: sourceGuess, ambiguous: true,
		},
		"without answers and checkpoint what was served counts": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)).with(noCheckpoint).
				with(servedAs(1, "main", time.Hour, gpus(0, 1)...)),
			world: world{deaf: true},
			want:  "p2/main", wantSource: sourceGuess,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			who, asked, listed := settle(t, tc.facts, tc.world)
			got := ""
			if who != nil {
				got = who.pod.name + "/" + who.container.name
			}
			if got != tc.want {
				t.Fatalf("found %q after asking for %v, want %q", got, asked, tc.want)
			}
			if tc.wantAsked != nil && !slices.Equal(asked, tc.wantAsked) {
				t.Errorf("asked for %v, want %v", asked, tc.wantAsked)
			}
			if listed != tc.wantListed {
				t.Errorf("listed: %v, want %v", listed, tc.wantListed)
			}
			if who == nil {
				return
			}
			if who.source != tc.wantSource || who.ambiguous != tc.ambiguous {
				t.Errorf("source %s, ambiguous %v; want %s, %v", who.source, who.ambiguous, tc.wantSource, tc.ambiguous)
			}
			if tc.wantIDs != nil && !slices.Equal(who.want, tc.wantIDs) {
				t.Errorf("should get %v, want %v", who.want, tc.wantIDs)
			}
		})
	}
}

func TestResolveCostsFewQuestionsInABurst(t *testing.T) {
	orders := map[string]func(i int) (created, version int){
		"bound in the order of creation":  func(i int) (int, int) { return i, i },
		"bound in the opposite order":     func(i int) (int, int) { return i, 110 - i },
		"bound in no order":               func(i int) (int, int) { return i, i * 37 % 110 },
		"created in the same second, all": func(i int) (int, int) { return 0, i * 53 % 110 },
	}
	for name, order := range orders {
		for _, by := range []string{"binding", "age"} {
			t.Run(name+", admitted by "+by, func(t *testing.T) {
				var pods []*podView
				for i := range 110 {
					created, version := order(i)
					p := testPod(i, asks("main", 1))
					p.created, p.version = epoch.Add(time.Duration(created)*time.Second), uint64(version)
					pods = append(pods, p)
				}
				admitted := slices.Clone(pods)
				slices.SortStableFunc(admitted, func(a, b *podView) int {
					if by == "age" && !a.created.Equal(b.created) {
						return a.created.Compare(b.created)
					}
					return int(a.version) - int(b.version)
				})
				recorded, total, most := byPod{}, 0, 0
				for i, p := range admitted {
					f := newFacts(newQuestion(gpu, gpus(i), nil, 1), slices.Clone(pods)...)
					f.recorded = recorded
					known := map[string]map[string][]string{}
					for _, k := range admitted[:i+1] {
						known[k.name] = recorded[k.uid]
					}
					who, asked, _ := settle(t, f, world{kubelet: known})
					if who == nil || who.pod != p {
						t.Fatalf("question %d: found %v, want %s", i, who, p.name)
					}
					total, most = total+len(asked), max(most, len(asked))
					recorded[p.uid] = map[string][]string{"main": gpus(i)}
				}
				t.Logf("%d questions for 110 pods, at most %d for one", total, most)
				if total > 3*110 {
					t.Errorf("%d questions for 110 pods", total)
				}
			})
		}
	}
}

// TestResolveStopsAtItsBounds: a kubelet that does not tell all its pods is asked for
// one after the other, and not for all of them.
func TestResolveStopsAtItsBounds(t *testing.T) {
	var pods []*podView
	for i := range 60 {
		pods = append(pods, testPod(i, asks("main", 1)))
	}
	late := testPod(99, asks("main", 1))
	apart := func(f *facts) { f.apart = true }
	_, asked, listed := settle(t, newFacts(wanting(1), pods...).with(apart), world{
		kubelet: map[string]map[string][]string{"p99": {"main": nil}}, live: append(slices.Clone(pods), late),
	})
	if len(asked) != listAfter+1 || !listed {
		t.Errorf("asked for %d pods and listed %v; want the list after %d unknown ones", len(asked), listed, listAfter)
	}
	// Kubelet knows one whose device is gone: it is believed after a few more.
	pods[0] = testPod(0, asks("main", 1, "GPU-gone"))
	who, asked, listed := settle(t, newFacts(wanting(1), pods...).with(apart), world{kubelet: map[string]map[string][]string{"p0": {"main": nil}}})
	if who == nil || who.pod != pods[0] || len(asked) != 1+doubtful || !listed {
		t.Errorf("found %v after asking for %s, listed %v; want p0 after the list and %d", who, strings.Join(asked, " "), listed, 1+doubtful)
	}
}
