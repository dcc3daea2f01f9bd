// SPDX-License-Identifier: Apache-2.0

package fairsort

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

func init() { metrics.Register() }

// testQueue is kube-scheduler's queue in the order of a plugin.
type testQueue struct {
	*internalqueue.PriorityQueue
	plugin *Plugin
}

func newTestQueue(t *testing.T) *testQueue {
	t.Helper()
	p := &Plugin{turns: NewTurns()}
	return &testQueue{internalqueue.NewTestQueue(t.Context(), p.Less), p}
}

func (q *testQueue) add(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		q.Add(klog.Background(), pod)
	}
}

// try takes the next pod out of the queue, as a scheduling cycle does.
func (q *testQueue) try(t *testing.T) *v1.Pod {
	t.Helper()
	info, err := q.Pop(klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	pod := info.Pod
	if _, status := q.plugin.PreFilter(t.Context(), nil, pod, nil); !status.IsSkip() {
		t.Fatalf("PreFilter: %v, want Skip", status)
	}
	q.Done(pod.UID)
	return pod
}

func pod(namespace string, n int, priority int32) *v1.Pod {
	name := fmt.Sprintf("%s-%d-%03d", namespace, priority, n)
	return st.MakePod().Namespace(namespace).Name(name).UID(name).Priority(priority).Obj()
}

// TestOrder: who is tried in which order.
func TestOrder(t *testing.T) {
	a := []*v1.Pod{pod("a", 0, 0), pod("a", 1, 0), pod("a", 2, 0)}
	for name, tc := range map[string]struct {
		pods []*v1.Pod // in the order in which they come
		want []string
	}{
		"one namespace, in the order of coming":               {pods: a, want: []string{"a-0-000", "a-0-001", "a-0-002"}},
		"another namespace does not wait for all before":      {pods: append(slices.Clone(a), pod("b", 0, 0)), want: []string{"a-0-000", "b-0-000", "a-0-001", "a-0-002"}},
		"two that came last take turns with who came first":   {pods: append(slices.Clone(a), pod("b", 0, 0), pod("b", 1, 0)), want: []string{"a-0-000", "b-0-000", "a-0-001", "b-0-001", "a-0-002"}},
		"a more important pod comes first, whatever the turn": {pods: append(slices.Clone(a), pod("a", 3, 5)), want: []string{"a-5-003", "a-0-000", "a-0-001", "a-0-002"}},
		"turns of one priority are none of another's":         {pods: append(slices.Clone(a), pod("a", 0, 5), pod("a", 1, 5), pod("b", 0, 0)), want: []string{"a-5-000", "a-5-001", "a-0-000", "b-0-000", "a-0-001", "a-0-002"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			q.add(t, tc.pods...)
			var got []string
			for range tc.pods {
				got = append(got, q.try(t).Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tried (-want +got):\n%s", diff)
			}
			if n := len(q.plugin.turns.pods); n != 0 {
				t.Errorf("%d turns are kept of an empty queue", n)
			}
		})
	}
}

// TestTurnsTaken: of many namespaces that make pods at random, the k-th pod in the queue of its namespace and
// priority is tried after at most k+1 pods of each other one, and not before those that came before it.
func TestTurnsTaken(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 34))
		q := newTestQueue(t)
		type waiting struct {
			pod    *v1.Pod
			place  int            // in its namespace and priority as it came, from 1 on
			passed map[string]int // pods of its priority that were tried since, by namespace
		}
		var queue []*waiting // in the order of coming
		same := func(x, y *v1.Pod) bool { return x.Namespace == y.Namespace && *x.Spec.Priority == *y.Spec.Priority }
		for step, made := 0, 0; step < 1000; step++ {
			if rng.IntN(2) == 0 || len(queue) == 0 {
				namespace := string('a' + rune(rng.IntN(1+rng.IntN(4))))
				for range 1 + rng.IntN(5) {
					w := &waiting{pod: pod(namespace, made, int32(rng.IntN(2))), place: 1, passed: map[string]int{}}
					made++
					for _, o := range queue {
						if same(o.pod, w.pod) {
							w.place++
						}
					}
					q.add(t, w.pod)
					queue = append(queue, w)
				}
				continue
			}
			tried := q.try(t)
			at := slices.IndexFunc(queue, func(w *waiting) bool { return w.pod == tried })
			first := slices.IndexFunc(queue, func(w *waiting) bool { return same(w.pod, tried) })
			if at != first {
				t.Fatalf("seed %d, step %d: %s is tried before %s, which came before", seed, step, tried.Name, queue[first].pod.Name)
			}
			w := queue[at]
			queue = slices.Delete(queue, at, at+1)
			for namespace, n := range w.passed {
				if n > w.place+1 {
					t.Fatalf("seed %d, step %d: %s, the %d. of its namespace, is tried after %d of namespace %s", seed, step, tried.Name, w.place, n, namespace)
				}
			}
			for _, o := range queue {
				if o.pod.Namespace != tried.Namespace && *o.pod.Spec.Priority == *tried.Spec.Priority {
					o.passed[tried.Namespace]++
				}
				if *o.pod.Spec.Priority > *tried.Spec.Priority {
					t.Fatalf("seed %d, step %d: %s is tried before %s, which is more important", seed, step, tried.Name, o.pod.Name)
				}
			}
		}
	}
}

// TestDeletedPods: the turns of pods that are deleted before they are tried are forgotten, by and by.
func TestDeletedPods(t *testing.T) {
	turns := NewTurns()
	for i := range 10 * keepGone {
		p := pod(fmt.Sprint("ns-", i), i, 0)
		turns.of(p)
		turns.podDeleted(cache.DeletedFinalStateUnknown{Obj: p})
		turns.podDeleted(p) // the watch tells it again
	}
	if n := len(turns.pods); n > 2*keepGone {
		t.Errorf("%d turns are kept, want at most %d", n, 2*keepGone)
	}
	for i := range 10 * keepNamespaces {
		p := pod(fmt.Sprint("ns-", i), i, 1)
		turns.of(p)
		turns.tried(p.UID)
	}
	if n := len(turns.priorities[1].last); n > keepNamespaces {
		t.Errorf("%d namespaces are remembered of which no pod waits, want at most %d", n, keepNamespaces)
	}
}

// TestLongerFirst: of two pods that were never compared, the one that is in the queue for longer has its turn
// first, in whatever order they are given.
func TestLongerFirst(t *testing.T) {
	early, late := pod("a", 1, 0), pod("a", 0, 0)
	now := time.Unix(1_700_000_000, 0)
	for _, swapped := range []bool{false, true} {
		p := &Plugin{turns: NewTurns()}
		x, y := queued(t, early, now), queued(t, late, now.Add(time.Second))
		if swapped {
			x, y = y, x
		}
		if got := p.Less(x, y); got == swapped {
			t.Errorf("swapped %t: the first is less: %t", swapped, got)
		}
	}
}

func queued(t *testing.T, pod *v1.Pod, at time.Time) *framework.QueuedPodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return &framework.QueuedPodInfo{PodInfo: info, Timestamp: at}
}
