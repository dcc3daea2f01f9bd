// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// nominator is a handle whose nominated pods the test sets.
type nominator struct {
	fwk.Handle
	ask func(node string) []fwk.PodInfo
}

func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n.ask(node) }

// nominee returns a pod with a priority that waits for a node.
func nominee(tb testing.TB, name string, priority int32) []fwk.PodInfo {
	tb.Helper()
	info, err := framework.NewPodInfo(schedtest.Pod(name).GPUs(1).Priority(priority).Obj())
	if err != nil {
		tb.Fatal(err)
	}
	return []fwk.PodInfo{info}
}

// TestQueueLocking: no lock is held while the queue is read. The scheduling queue answers under its own
// lock.
func TestQueueLocking(t *testing.T) {
	s := newCachedState(t)
	for i := range 4 {
		s.add(fmt.Sprint("n", i), "dgx-h100")
		s.plain(fmt.Sprint("p", i))
	}
	asked, locked := 0, false
	h := nominator{s.framework, func(node string) []fwk.PodInfo {
		asked++
		if locked {
			return nil // one wait is enough
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.PreSelector.HasBoth()
			s.Nominator.NominatedReservations()
			s.PreSelector.RetriesOnAllNodes("pod")
			s.Changes.touchNode(node)
		}()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			locked = true
			t.Error("the queue is asked while something is locked that others wait for")
		}
		return nil
	}}
	for _, gpus := range []int{0, 1, 8} {
		pod := schedtest.Pod("pod").GPUs(gpus).Obj()
		if names, _ := s.PreSelector.Candidates(demandOf(t, pod), pod, narrowing(), h, s.list()); len(names) == 0 {
			t.Errorf("no list for %d GPUs", gpus)
		}
	}
	if asked == 0 {
		t.Error("nobody was asked")
	}
}

// TestKeptNodes: nodes kept for others are not listed. It nominates pods for random nodes and
// compares the lists with a search that leaves these nodes out.
func TestKeptNodes(t *testing.T) {
	kinds := []string{"dgx1-v100", "l40s-8", "a6000-8-bridged"}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 11))
			s := newCachedState(t)
			for i := range 24 {
				s.add(fmt.Sprintf("n%02d", i), kinds[i%len(kinds)])
				s.plain(fmt.Sprintf("p%02d", i))
			}
			nodes := s.list()
			kept := sets.Set[string]{}
			h := nominator{s.framework, func(node string) []fwk.PodInfo {
				if kept.Has(node) {
					return nominee(t, "nominee-"+node, 5)
				}
				return nominee(t, "less-"+node, 4) // the listed pod comes before it
			}}
			left := 0
			for range 100 {
				clear(kept)
				for _, info := range nodes {
					if r.IntN(10) < 7 {
						kept.Insert(info.Node().Name)
					}
				}
				asks := schedtest.Pod("pod").GPUs(r.IntN(9)).Priority(5)
				if r.IntN(4) == 0 && len(asks.Spec.Containers[0].Resources.Limits) > 0 {
					asks.Annotation(podrequest.TopologyPolicyKey, "single-numa-node").CPU("8").Memory("16Gi")
				}
				pod := asks.Obj()
				how := narrowing()
				got, ratedBy := s.PreSelector.Candidates(demandOf(t, pod), pod, how, h, nodes)
				if both := got.Intersection(kept); len(both) > 0 {
					t.Fatalf("listed %v, which are kept for others", sets.List(both))
				}
				if !demandOf(t, pod).HasGPUs() {
					if want := 24; len(got)+countPlain(kept) != want {
						t.Fatalf("%d nodes without GPUs are listed and %d kept, want %d in all", len(got), countPlain(kept), want)
					}
					continue
				}
				want, wantRatedBy := s.linearWithout(pod, how, kept)
				if !got.Equal(want) || ratedBy != wantRatedBy {
					t.Fatalf("listed %v, rated by %+v; a linear search finds %v, %+v", sets.List(got), ratedBy, sets.List(want), wantRatedBy)
				}
				left += len(got)
			}
			if left == 0 {
				t.Error("no list had a node")
			}
		})
	}
}

func countPlain(names sets.Set[string]) (n int) {
	for name := range names {
		if name[0] == 'p' {
			n++
		}
	}
	return n
}

// TestNominationDuringListing: a nomination may come while a list is made. The queue's answer changes
// with every call. The list ends, and has no node that the queue kept for another pod at the last call.
func TestNominationDuringListing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	s := newCachedState(t)
	for i := range 40 {
		s.add(fmt.Sprint("n", i), "dgx-h100")
	}
	nodes, how := s.list(), narrowing()
	how.Limit = 4
	last := map[string]bool{}
	h := nominator{s.framework, func(node string) []fwk.PodInfo {
		if last[node] = r.IntN(8) == 0; last[node] {
			return nominee(t, "nominee", 0)
		}
		return nil
	}}
	for range 200 {
		clear(last)
		pod := schedtest.Pod("pod").GPUs(2).Obj()
		names, _ := s.PreSelector.Candidates(demandOf(t, pod), pod, how, h, nodes)
		if len(names) == 0 {
			t.Fatal("no list")
		}
		for name := range names {
			if kept, asked := last[name]; kept || !asked {
				t.Fatalf("node %s is listed; asked: %t, kept for another: %t", name, asked, kept)
			}
		}
	}
}

// TestKeptNodeQuestions: many kept nodes cost few calls. A pod whose best nodes are kept for others soon
// looks up all nodes at once.
func TestKeptNodeQuestions(t *testing.T) {
	const size = 60
	s := newCachedState(t)
	for i := range size {
		s.add(fmt.Sprint("n", i), "dgx-h100")
	}
	nodes, how := s.list(), narrowing()
	how.Limit = 1
	asked := 0
	h := nominator{s.framework, func(node string) []fwk.PodInfo {
		if asked++; node == "n17" {
			return nil
		}
		return nominee(t, "nominee", 0)
	}}
	pod := schedtest.Pod("pod").GPUs(2).Obj()
	names, _ := s.PreSelector.Candidates(demandOf(t, pod), pod, how, h, nodes)
	if !names.Equal(sets.New("n17")) {
		t.Errorf("listed %v, want the one node that is nobody's", sets.List(names))
	}
	if most := size + 10; asked > most {
		t.Errorf("the queue was asked %d times about %d nodes, want at most %d", asked, size, most)
	}
}
