// SPDX-License-Identifier: Apache-2.0

package fairsort

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func init() { metrics.Register() }

// testQueue is kube-scheduler's queue in the order of a plugin.
type testQueue struct {
	*internalqueue.PriorityQueue
	plugin *Plugin
}

func newTestQueue(t *testing.T) *testQueue {
	t.Helper()
	p := &Plugin{turns: NewTurns(clock.RealClock{})}
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
	if _, status := q.plugin.PreFilter(t.Context(), cycle(), pod, nil); !status.IsSkip() {
		t.Fatalf("PreFilter: %v, want Skip", status)
	}
	q.Done(pod.UID)
	return pod
}

func pod(namespace string, n int, priority int32) *v1.Pod {
	name := fmt.Sprintf("%s-%d-%03d", namespace, priority, n)
	return st.MakePod().Namespace(namespace).Name(name).UID(name).Priority(priority).Obj()
}

// TestOrder: the order in which pods are tried.
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

// cycle is the state of a pod's own cycle.
func cycle() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	return state
}

// heapOf is the scheduling queue's heap.
type heapOf struct {
	plugin *Plugin
	infos  []*framework.QueuedPodInfo
}

func (h *heapOf) Len() int           { return len(h.infos) }
func (h *heapOf) Less(i, j int) bool { return h.plugin.Less(h.infos[i], h.infos[j]) }
func (h *heapOf) Swap(i, j int)      { h.infos[i], h.infos[j] = h.infos[j], h.infos[i] }
func (h *heapOf) Push(x any)         { h.infos = append(h.infos, x.(*framework.QueuedPodInfo)) } //nolint:forcetypeassert // the test's
func (h *heapOf) Pop() any {
	last := h.infos[len(h.infos)-1]
	h.infos = h.infos[:len(h.infos)-1]
	return last
}

// member is a pod in the queue, in the test's own records.
type member struct {
	info   *framework.QueuedPodInfo
	place  int          // in its line as it came, from 1 on
	passed map[line]int // pods of its priority that were tried since, by line
}

func lineOf(info *framework.QueuedPodInfo) line {
	return line{info.Pod.Namespace, *info.Pod.Spec.Priority, info.Attempts > 0}
}

// TestTurnsTaken: with many namespaces that make, delete and try pods at random, the k-th pod in the queue
// of its line is tried after at most k+1 pods of each other line of its priority, and after the earlier
// pods of its line. This also holds with dry runs, for a process that begins to lead late, and where the
// queue sees deletions late.
func TestTurnsTaken(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 34))
		now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
		h := &heapOf{plugin: &Plugin{turns: NewTurns(now)}}
		var queue, refused []*member
		lead := rng.IntN(300) // before, another process tries the pods
		push := func(info *framework.QueuedPodInfo) {
			m := &member{info: info, place: 1, passed: map[line]int{}}
			for _, o := range queue {
				if lineOf(o.info) == lineOf(info) {
					m.place++
				}
			}
			queue = append(queue, m)
			heap.Push(h, info)
		}
		for step, made := 0, 0; step < 1500; step++ {
			now.SetTime(now.Now().Add(time.Duration(rng.IntN(3)) * time.Second))
			switch n := rng.IntN(10); {
			case n < 4 || len(queue) == 0:
				for range 1 + rng.IntN(5) {
					p := pod(string('a'+rune(rng.IntN(1+rng.IntN(4)))), made, int32(rng.IntN(2)))
					info := queued(t, p, now.Now())
					made++
					push(info)
				}
			case n == 4: // the last of a line is deleted, or all, and the queue sees it after the plugin
				of, all := lineOf(queue[rng.IntN(len(queue))].info), rng.IntN(2) == 0
				var gone []*member
				for _, m := range slices.Backward(queue) {
					if lineOf(m.info) == of && (all || len(gone) == 0) {
						gone = append(gone, m)
						h.plugin.turns.podDeleted(m.info.Pod)
					}
				}
				queue = slices.DeleteFunc(queue, func(m *member) bool { return slices.Contains(gone, m) })
				if rng.IntN(2) == 0 {
					push(queued(t, pod("late", made, 0), now.Now()))
					made++
				}
				for _, m := range gone {
					heap.Remove(h, slices.Index(h.infos, m.info))
				}
			case n == 5: // a dry run
				h.plugin.PreFilter(t.Context(), framework.NewCycleState(), queue[rng.IntN(len(queue))].info.Pod, nil)
			case n == 6 && len(refused) > 0:
				m := refused[0]
				refused = refused[1:]
				m.info.Timestamp = now.Now()
				push(m.info)
			default:
				info := heap.Pop(h).(*framework.QueuedPodInfo) //nolint:forcetypeassert // the test's
				at := slices.IndexFunc(queue, func(m *member) bool { return m.info == info })
				first := slices.IndexFunc(queue, func(m *member) bool { return lineOf(m.info) == lineOf(info) })
				if at != first {
					t.Fatalf("seed %d, step %d: %s is tried before %s, which came before", seed, step, info.Pod.Name, queue[first].info.Pod.Name)
				}
				m := queue[at]
				queue = slices.Delete(queue, at, at+1)
				if step < lead {
					bound := info.Pod.DeepCopy()
					bound.Spec.NodeName = "n"
					h.plugin.turns.podUpdated(info.Pod, bound)
				} else {
					h.plugin.PreFilter(t.Context(), cycle(), info.Pod, nil)
				}
				for l, n := range m.passed {
					if n > m.place+1 {
						t.Fatalf("seed %d, step %d: %s, the %d. of its line, is tried after %d of %v", seed, step, info.Pod.Name, m.place, n, l)
					}
				}
				for _, o := range queue {
					if *o.info.Pod.Spec.Priority > *info.Pod.Spec.Priority {
						t.Fatalf("seed %d, step %d: %s is tried before %s, which is more important", seed, step, info.Pod.Name, o.info.Pod.Name)
					}
					if l := lineOf(info); lineOf(o.info) != l && *o.info.Pod.Spec.Priority == l.priority {
						o.passed[l]++
					}
				}
				if info.Attempts++; step >= lead && rng.IntN(2) == 0 {
					refused = append(refused, m)
				}
			}
		}
	}
}

// TestGonePods: no data is kept of pods that have been gone for long, nor of their namespaces.
func TestGonePods(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	turns := NewTurns(now)
	for i := range 3000 {
		info := queued(t, pod(fmt.Sprint("ns-", i), i, int32(i%2)), now.Now())
		turns.both(info, info, true)
		switch i % 3 {
		case 0:
			turns.podDeleted(cache.DeletedFinalStateUnknown{Obj: info.Pod})
			turns.podDeleted(info.Pod) // the watch tells it again
		case 1:
			bound := info.Pod.DeepCopy()
			bound.Spec.NodeName = "n"
			turns.podUpdated(info.Pod, bound)
		default:
			turns.tried(info.Pod.UID)
		}
		now.SetTime(now.Now().Add(time.Second))
	}
	if len(turns.lines) > maxLines+100 || len(turns.pods) > 100 || len(turns.gone) > 100 {
		t.Errorf("%d lines, %d turns and %d pods that are gone are kept, want those of a minute", len(turns.lines), len(turns.pods), len(turns.gone))
	}
}

// TestLongerFirst: of two pods that were never compared, the one that has been in the queue for longer has
// the earlier turn, in whatever order they are passed.
func TestLongerFirst(t *testing.T) {
	early, late := pod("a", 1, 0), pod("a", 0, 0)
	now := time.Unix(1_700_000_000, 0)
	for _, swapped := range []bool{false, true} {
		p := &Plugin{turns: NewTurns(clock.RealClock{})}
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
