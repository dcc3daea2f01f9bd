// SPDX-License-Identifier: Apache-2.0

package podfinder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfindertest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// Short names of what podfindertest has.
const (
	gpu      = podfindertest.GPU
	surveyed = podfindertest.Surveyed
)

var (
	epoch      = podfindertest.Epoch
	asks       = podfindertest.Asks
	newFacts   = podfindertest.Facts
	gpus       = podfindertest.GPUs
	including  = podfindertest.Including
	initAsks   = podfindertest.InitAsks
	testPod    = podfindertest.Pod
	recordedAs = podfindertest.RecordedAs
	servedAs   = podfindertest.ServedAs
	settle     = podfindertest.Settle
	wanting    = podfindertest.Wanting
	without    = podfindertest.Without
)

func but(p *podfinder.Pod, change func(*podfinder.Pod)) *podfinder.Pod {
	change(p)
	return p
}

func deleting(p *podfinder.Pod) { p.Deleting = true }
func started(p *podfinder.Pod)  { p.Started = true }
func terminal(p *podfinder.Pod) { p.Terminal = true }

func with(f *podfinder.Facts, changes ...func(*podfinder.Facts)) *podfinder.Facts {
	for _, change := range changes {
		change(f)
	}
	return f
}

// claimed says that another question was just answered for a container of pod n.
func claimed(n int, container string) func(*podfinder.Facts) {
	return func(f *podfinder.Facts) {
		f.Claimed[podfinder.ContainerRef{UID: types.UID(fmt.Sprintf("uid-p%d", n)), Container: container}] = true
	}
}

func noCheckpoint(f *podfinder.Facts) { f.Recorded = nil }

func TestResolve(t *testing.T) {
	type kubelet = map[string]map[string][]string
	two := func(n int, chosen ...string) *podfinder.Pod {
		return testPod(n, asks("main", 2, chosen...))
	}
	cases := map[string]struct {
		facts      *podfinder.Facts
		world      podfindertest.World
		want       string // pod/container, "" for nobody
		wantIDs    []string
		wantSource string
		ambiguous  bool
		wantAsked  []string // nil: not looked at
		wantListed bool
	}{
		"6.1 of pods with equal counts the one kubelet knows asks": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...), two(3, gpus(4, 5)...)),
			world: podfindertest.World{Kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet,
		},
		"6.1 the oldest is asked for first, and asking stops at it": {
			facts: newFacts(wanting(2), two(3), two(2), two(1)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p1"},
		},
		"6.2 admission in another order than creation costs two questions if it is that of binding": {
			facts: newFacts(wanting(2), two(1), two(2), but(two(4), func(p *podfinder.Pod) { p.Version = 1 })),
			world: podfindertest.World{Kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p1", "p4"},
		},
		"6.2 and one once it is known to be that of binding, among any number": {
			facts: with(newFacts(wanting(2), two(1), two(2), two(3), but(two(4), func(p *podfinder.Pod) { p.Version = 1 })), func(f *podfinder.Facts) { f.ByBinding = true }),
			world: podfindertest.World{Kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p4"},
		},
		"6.2 in no order it costs three, among any number": {
			facts: newFacts(wanting(2), two(1), two(2), two(3), two(4), two(5), two(6)),
			world: podfindertest.World{Kubelet: kubelet{"p4": {"main": nil}}},
			want:  "p4/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p1", surveyed, "p4"},
		},
		"pods of another size are not asked for": {
			facts: newFacts(wanting(2), testPod(1, asks("main", 1)), testPod(2, asks("main", 4)), two(3)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}, "p3": {"main": nil}}},
			want:  "p3/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p3"},
		},
		"pods that ask for another resource, or none, are not asked for": {
			facts: newFacts(wanting(2), testPod(1), testPod(2, podfinder.Container{Name: "c", Limits: map[string]int{"rdma/hca": 2}}), two(3)),
			world: podfindertest.World{Kubelet: kubelet{"p3": {"main": nil}}},
			want:  "p3/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p3"},
		},
		"pods that hold theirs are not asked for": {
			facts: with(newFacts(wanting(2), two(1), two(2)), recordedAs(1, "main", gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": gpus(0, 1)}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p2"},
		},
		"pods that have ended are not asked for": {
			facts: newFacts(wanting(2), but(two(1), terminal), two(2)),
			world: podfindertest.World{Kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p2"},
		},
		"6.3 a pod the watch has not delivered is found in the live list": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p9": {"main": nil}}, Live: []*podfinder.Pod{two(1, gpus(0, 1)...), two(9, gpus(6, 7)...)}},
			want:  "p9/main", wantIDs: gpus(6, 7), wantSource: podfinder.SourceGet, wantAsked: []string{"p1", "p9"}, wantListed: true,
		},
		"6.3 a pod that is in no list is nobody's": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...)),
			want:  "", wantListed: true,
		},
		"6.3 on an empty node the list is taken at once": {
			facts: newFacts(wanting(2)), want: "", wantAsked: nil, wantListed: true,
		},
		"6.4 a pod deleted before it was admitted gives way to one that was not": {
			facts: newFacts(wanting(2), but(two(1, gpus(0, 1)...), deleting), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet, wantAsked: []string{"p2"},
		},
		"6.4 a started pod whose record kubelet lost gives way to one that was not started": {
			facts: newFacts(wanting(2), but(two(1, gpus(0, 1)...), started), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: podfinder.SourceGet,
		},
		"6.4 a rejected pod whose status has not reached the API is unknown to kubelet": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(0, 1)...)), servedAs(1, "main", time.Minute, gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet,
		},
		"6.4 a static pod has no annotation and is found like any other": {
			facts: newFacts(wanting(2), two(1), two(2, gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantSource: podfinder.SourceGet,
		},
		"6.5 an init container asks before the container": {
			facts: newFacts(wanting(2), testPod(1, initAsks("load", 2, gpus(0, 1)...), asks("main", 2, gpus(0, 1)...))),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/load", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet,
		},
		"6.5 after the init container the container asks": {
			facts: with(newFacts(including(wanting(4), gpus(0, 1)...),
				testPod(1, initAsks("load", 2, gpus(0, 1)...), asks("main", 4, gpus(0, 1, 2, 3)...))), recordedAs(1, "load", gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1, 2, 3), wantSource: podfinder.SourceGet, wantAsked: []string{"p1"},
		},
		"6.5 devices left by an init container tell whose it is before all others": {
			facts: with(newFacts(including(wanting(4), gpus(0, 1)...), testPod(1, asks("main", 4)), testPod(2, asks("main", 4)),
				testPod(3, initAsks("load", 2), asks("main", 4))), recordedAs(3, "load", gpus(0, 1)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p3": {"main": nil}}},
			want:  "p3/main", wantSource: podfinder.SourceGet, wantAsked: []string{"p3"},
		},
		"6.5 an allocation out of an init container's devices is its pod's, whatever was chosen": {
			facts: with(newFacts(question.NewFinal(gpu, gpus(1, 3)), testPod(1, asks("main", 2, gpus(1, 3)...)),
				testPod(2, initAsks("load", 4, gpus(0, 1, 2, 3)...), asks("a", 2, gpus(0, 1)...), asks("b", 2, gpus(2, 3)...))), recordedAs(2, "load", gpus(0, 1, 2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p2": {"a": nil, "b": nil}}},
			want:  "p2/a", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet, wantAsked: []string{"p2"},
		},
		"6.5 a sidecar is shown by kubelet and needs no record": {
			facts: with(newFacts(wanting(2), testPod(1, asks("proxy", 1), asks("main", 2, gpus(4, 5)...))), noCheckpoint, servedAs(1, "proxy", time.Second, gpus(0)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"proxy": gpus(0), "main": nil}}},
			want:  "p1/main", wantIDs: gpus(4, 5), wantSource: podfinder.SourceGet,
		},
		"6.5 an app container with devices shows that the init containers before were served": {
			facts: with(newFacts(wanting(2), testPod(1, initAsks("load", 1), asks("a", 2), asks("b", 2, gpus(4, 5)...))), noCheckpoint),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"a": gpus(0, 1), "b": nil}}},
			want:  "p1/b", wantIDs: gpus(4, 5), wantSource: podfinder.SourceGet,
		},
		"6.6 devices of another resource do not count": {
			facts: newFacts(wanting(2), testPod(1, podfinder.Container{
				Name: "main", Limits: map[string]int{gpu: 2, "rdma/hca": 1}, Want: map[string][]string{gpu: gpus(0, 1)},
			})),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet,
		},
		"6.8 a container that was served and that kubelet lost asks for what it had": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...)), servedAs(1, "main", time.Hour, gpus(4, 5)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(4, 5), wantSource: podfinder.SourceGet, wantListed: true,
		},
		"6.8 a started pod asks when nobody else does": {
			facts: newFacts(wanting(2), but(two(1, gpus(0, 1)...), started), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet, wantListed: true,
		},
		"6.8 any container of a started pod may be the one that is restarted": {
			facts: newFacts(wanting(2), but(testPod(1, asks("a", 1, gpus(0)...), asks("b", 2, gpus(2, 3)...)), started)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"a": nil, "b": nil}}},
			want:  "p1/b", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet, wantListed: true,
		},
		"6.10 a pod deleted before kubelet admits it is still matched": {
			facts: newFacts(wanting(2), but(two(1, gpus(0, 1)...), deleting)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet, wantListed: true,
		},
		"6.10 devices of an earlier pod of the same name are not its successor's": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": gpus(0, 1)}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet, wantAsked: []string{"p1", "p2"},
		},
		"6.11 a pod whose device is still held is the one that asks, if kubelet knows no other": {
			facts: newFacts(without(wanting(2), gpus(1)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet, wantAsked: []string{"p1", "p2"}, wantListed: true,
		},
		"6.14 of two that kubelet knows the one whose devices are on offer asks": {
			facts: newFacts(without(wanting(2), gpus(1)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet,
		},
		"6.15 a pod nobody chose for is found too": {
			facts: newFacts(wanting(2), two(1, gpus(0, 1)...), two(2)),
			world: podfindertest.World{Kubelet: kubelet{"p2": {"main": nil}}},
			want:  "p2/main", wantSource: podfinder.SourceGet,
		},
		"6.17 a container that was just answered is not taken for another question": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...), but(two(2, gpus(2, 3)...), started)), claimed(1, "main")),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceGet, ambiguous: true, wantListed: true,
		},
		"6.17 nor is one that was just served, before kubelet shows it": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...), but(two(2, gpus(2, 3)...), started)), servedAs(1, "main", time.Millisecond, gpus(0, 1)...), claimed(1, "main")),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}, "p2": {"main": nil}}},
			want:  "p2/main", wantSource: podfinder.SourceGet, ambiguous: true, wantListed: true,
		},
		"6.17 it asks again if there is nobody else": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...)), claimed(1, "main")),
			world: podfindertest.World{Kubelet: kubelet{"p1": {"main": nil}}},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGet, wantListed: true,
		},
		"the next container of the pod just served is asked for first": {
			facts: with(newFacts(wanting(2), two(1), two(2), testPod(3, asks("a", 1), asks("b", 2, gpus(4, 5)...))), recordedAs(3, "a", gpus(0)...), func(f *podfinder.Facts) { f.Last = "uid-p3" }),
			world: podfindertest.World{Kubelet: kubelet{"p3": {"a": gpus(0), "b": nil}}},
			want:  "p3/b", wantIDs: gpus(4, 5), wantSource: podfinder.SourceGet, wantAsked: []string{"p3"},
		},
		"an allocation nobody was asked about is first thought to be of who should get exactly that": {
			facts: newFacts(question.NewFinal(gpu, gpus(4, 5)), two(1, gpus(0, 1)...), two(2), two(3, gpus(4, 5)...)),
			world: podfindertest.World{Kubelet: kubelet{"p3": {"main": nil}}},
			want:  "p3/main", wantIDs: gpus(4, 5), wantSource: podfinder.SourceGet, wantAsked: []string{"p3"},
		},
		"without answers the only pod without a record asks": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)), recordedAs(1, "main", gpus(0, 1)...)),
			world: podfindertest.World{Deaf: true},
			want:  "p2/main", wantIDs: gpus(2, 3), wantSource: podfinder.SourceCheckpoint,
		},
		"without answers the oldest of several is guessed": {
			facts: newFacts(wanting(2), two(2, gpus(2, 3)...), two(1, gpus(0, 1)...)),
			world: podfindertest.World{Deaf: true},
			want:  "p1/main", wantIDs: gpus(0, 1), wantSource: podfinder.SourceGuess, ambiguous: true,
		},
		"without answers one that can get its devices is guessed before an older one that cannot": {
			facts: newFacts(without(wanting(2), gpus(0)...), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)),
			world: podfindertest.World{Deaf: true},
			want:  "p2/main", wantSource: podfinder.SourceGuess, ambiguous: true,
		},
		"without answers and checkpoint what was served counts": {
			facts: with(newFacts(wanting(2), two(1, gpus(0, 1)...), two(2, gpus(2, 3)...)), noCheckpoint, servedAs(1, "main", time.Hour, gpus(0, 1)...)),
			world: podfindertest.World{Deaf: true},
			want:  "p2/main", wantSource: podfinder.SourceGuess,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			who, asked, listed := settle(t, tc.facts, tc.world)
			got := ""
			if who != nil {
				got = who.Pod.Name + "/" + who.Container.Name
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
			if who.Source != tc.wantSource || who.Ambiguous != tc.ambiguous {
				t.Errorf("source %s, ambiguous %v; want %s, %v", who.Source, who.Ambiguous, tc.wantSource, tc.ambiguous)
			}
			if tc.wantIDs != nil && !slices.Equal(who.Want, tc.wantIDs) {
				t.Errorf("should get %v, want %v", who.Want, tc.wantIDs)
			}
		})
	}
}

// TestResolveBurst: a burst of pods costs few questions.
func TestResolveBurst(t *testing.T) {
	orders := map[string]func(i int) (created, version int){
		"bound in the order of creation":  func(i int) (int, int) { return i, i },
		"bound in the opposite order":     func(i int) (int, int) { return i, 110 - i },
		"bound in no order":               func(i int) (int, int) { return i, i * 37 % 110 },
		"created in the same second, all": func(i int) (int, int) { return 0, i * 53 % 110 },
	}
	for name, order := range orders {
		for _, by := range []string{"binding", "age"} {
			t.Run(name+", admitted by "+by, func(t *testing.T) {
				var pods []*podfinder.Pod
				for i := range 110 {
					created, version := order(i)
					p := testPod(i, asks("main", 1))
					p.Created, p.Version = epoch.Add(time.Duration(created)*time.Second), uint64(version)
					pods = append(pods, p)
				}
				admitted := slices.Clone(pods)
				slices.SortStableFunc(admitted, func(a, b *podfinder.Pod) int {
					if by == "age" && !a.Created.Equal(b.Created) {
						return a.Created.Compare(b.Created)
					}
					return int(a.Version) - int(b.Version)
				})
				recorded, total, most := podfinder.ByPod{}, 0, 0
				for i, p := range admitted {
					f := newFacts(question.New(gpu, gpus(i), nil, 1), slices.Clone(pods)...)
					f.Recorded = recorded
					known := map[string]map[string][]string{}
					for _, k := range admitted[:i+1] {
						known[k.Name] = recorded[k.UID]
					}
					who, asked, _ := settle(t, f, podfindertest.World{Kubelet: known})
					if who == nil || who.Pod != p {
						t.Fatalf("question %d: found %v, want %s", i, who, p.Name)
					}
					total, most = total+len(asked), max(most, len(asked))
					recorded[p.UID] = map[string][]string{"main": gpus(i)}
				}
				t.Logf("%d questions for 110 pods, at most %d for one", total, most)
				if total > 3*110 {
					t.Errorf("%d questions for 110 pods", total)
				}
			})
		}
	}
}

// TestResolveBounds: Resolve stops at its bounds. A kubelet that does not tell all its pods is
// asked for one after the other, and not for all of them.
func TestResolveBounds(t *testing.T) {
	var pods []*podfinder.Pod
	for i := range 60 {
		pods = append(pods, testPod(i, asks("main", 1)))
	}
	late := testPod(99, asks("main", 1))
	apart := func(f *podfinder.Facts) { f.Surveyed = true }
	_, asked, listed := settle(t, with(newFacts(wanting(1), pods...), apart), podfindertest.World{
		Kubelet: map[string]map[string][]string{"p99": {"main": nil}}, Live: append(slices.Clone(pods), late),
	})
	if len(asked) != podfinder.ListAfter+1 || !listed {
		t.Errorf("asked for %d pods and listed %v; want the list after %d unknown ones", len(asked), listed, podfinder.ListAfter)
	}
	// Kubelet knows one whose device is gone: it is believed after a few more.
	pods[0] = testPod(0, asks("main", 1, "GPU-gone"))
	who, asked, listed := settle(t, with(newFacts(wanting(1), pods...), apart), podfindertest.World{Kubelet: map[string]map[string][]string{"p0": {"main": nil}}})
	if who == nil || who.Pod != pods[0] || len(asked) != 1+podfinder.AskOnAfterMisfit || !listed {
		t.Errorf("found %v after asking for %s, listed %v; want p0 after the list and %d", who, strings.Join(asked, " "), listed, 1+podfinder.AskOnAfterMisfit)
	}
}
