// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// exceedNodes is how many nodes there are, each for one member.
	exceedNodes = 8
	// exceedRounds is how often two gangs come in make test; NVTOPO_GANG_ROUNDS says another
	// number.
	exceedRounds = 5
)

// TestExcessGangs lets two gangs come at once, each of which fits and not both,
// their members in an order that is another one each time: one is whole, and of the other nobody
// is bound before the first is gone. Then it is whole, too.
func TestExcessGangs(t *testing.T) {
	rounds := exceedRounds
	if s := os.Getenv("NVTOPO_GANG_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil || rounds < 1 {
			t.Fatalf("NVTOPO_GANG_ROUNDS=%s: want a number above 0", s)
		}
	}
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	s := scenario{free: freeRacks{{slices.Repeat([]int{8}, exceedNodes/2), slices.Repeat([]int{8}, exceedNodes/2)}}}
	l.makeRacks(t, 0, &s)
	l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	watch := l.watchGangs(t)

	var won [2]int
	for round := range rounds {
		rng := rand.New(rand.NewPCG(16, uint64(round)))
		var pods []*v1.Pod
		var sizes [2]int
		for i := range sizes {
			sizes[i] = exceedNodes/2 + 1 + rng.IntN(exceedNodes/2)
			pods = append(pods, gangPods(0, gangOf(round, i), sizes[i], 8, nil)...)
		}
		rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		l.createAll(t, pods)

		first := -1
		testkit.Eventually(t, waitLimit, "one of two gangs is whole", func(context.Context) (bool, string) {
			a, b := watch.bound(gangOf(round, 0)), watch.bound(gangOf(round, 1))
			if a == sizes[0] {
				first = 0
			} else if b == sizes[1] {
				first = 1
			}
			return first >= 0, fmt.Sprintf("%d of %d and %d of %d members are bound", a, sizes[0], b, sizes[1])
		})
		other := 1 - first
		won[first]++
		if n := watch.most(gangOf(round, other)); n > 0 {
			testkit.Violation(t, "round %d: gang %d is whole with %d members, and of the other's %d there were %d bound", round, first, sizes[first], sizes[other], n)
		}
		l.removeGang(t, watch, gangOf(round, first), sizes[first])
		testkit.Eventually(t, waitLimit, "the other gang is whole", func(context.Context) (bool, string) {
			n := watch.bound(gangOf(round, other))
			return n == sizes[other], fmt.Sprintf("round %d: %d of %d members are bound; %s", round, n, sizes[other], watch.says(gangOf(round, other)))
		})
		l.removeGang(t, watch, gangOf(round, other), sizes[other])
	}
	t.Logf("%d rounds: the first gang was whole first in %d, the second in %d; both were partly bound for %v at most", rounds, won[0], won[1], watch.worst())
}

func gangOf(round, i int) string { return fmt.Sprintf("exceed%d-%d", round, i) }

// removeGang deletes the members of a gang and waits until they are gone.
func (e *testEnv) removeGang(t *testing.T, w *gangWatch, gang string, size int) {
	t.Helper()
	names := make([]string, size)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", gang, i)
	}
	e.remove(t, names...)
	testkit.Eventually(t, waitLimit, "gang "+gang+" is gone", func(context.Context) (bool, string) {
		n := w.members(gang)
		return n == 0, fmt.Sprintf("%d members are left", n)
	})
}

// gangWatch follows how many members of each gang there are and are bound.
type gangWatch struct {
	mu    sync.Mutex
	seen  map[string]*gangSeen // by gang; guarded by mu
	since time.Time            // since when two gangs are partly bound; zero if they are not; guarded by mu
	long  time.Duration        // the longest time that two were; guarded by mu
}

// gangSeen is what was seen of a gang.
type gangSeen struct {
	size  int
	nodes map[string]string // member -> node, "" for none
	says  string            // why a member waits, as one said last
	most  int               // of its members were bound at a time
}

func (s *gangSeen) bound() (n int) {
	for _, node := range s.nodes {
		if node != "" {
			n++
		}
	}
	return n
}

func (e *testEnv) watchGangs(t *testing.T) *gangWatch {
	t.Helper()
	w := &gangWatch{seen: map[string]*gangSeen{}}
	factory := informers.NewSharedInformerFactory(e.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { w.take(obj, true) }, UpdateFunc: func(_, obj any) { w.take(obj, true) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			w.take(obj, false)
		},
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the pods are not read")
	}
	return w
}

// take takes note of a pod. A gang of which some members are bound counts as partly bound while
// it comes, and not while it is deleted.
func (w *gangWatch) take(obj any, exists bool) {
	pod, ok := obj.(*v1.Pod)
	if !ok || !strings.HasPrefix(pod.Name, "exceed") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	gang := pod.Annotations[gangrequest.GangKey]
	s := w.seen[gang]
	if s == nil {
		size, _ := strconv.Atoi(pod.Annotations[gangrequest.GangSizeKey])
		s = &gangSeen{size: size, nodes: map[string]string{}}
		w.seen[gang] = s
	}
	if s.nodes[pod.Name] = pod.Spec.NodeName; !exists {
		delete(s.nodes, pod.Name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			s.says = pod.Name + " says " + c.Message
		}
	}
	s.most = max(s.most, s.bound())
	partly := 0
	for _, s := range w.seen {
		if n := s.bound(); n > 0 && s.most < s.size {
			partly++
		}
	}
	switch now := time.Now(); {
	case partly < 2 && !w.since.IsZero():
		w.long, w.since = max(w.long, now.Sub(w.since)), time.Time{}
	case partly >= 2 && w.since.IsZero():
		w.since = now
	}
}

func (w *gangWatch) of(gang string) *gangSeen {
	if s := w.seen[gang]; s != nil {
		return s
	}
	return &gangSeen{}
}

func (w *gangWatch) bound(gang string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(gang).bound()
}

// most is how many members were bound at a time.
func (w *gangWatch) most(gang string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(gang).most
}

func (w *gangWatch) members(gang string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.of(gang).nodes)
}

// says is why the gang waits, as a member said last.
func (w *gangWatch) says(gang string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of(gang).says
}

// worst is the longest time that two gangs were partly bound.
func (w *gangWatch) worst() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.since.IsZero() {
		return max(w.long, time.Since(w.since))
	}
	return w.long
}
