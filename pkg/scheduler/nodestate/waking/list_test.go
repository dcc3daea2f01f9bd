// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

func refused(pod *v1.Pod, priority int32) *RefusedPod {
	return &RefusedPod{Pod: pod, Demand: placement.Demand{Request: &podrequest.Request{UID: pod.UID, Priority: priority, Admission: &kubeletadmission.Pod{}}}}
}

// TestListOrder: the pod of higher priority comes first, then the older one, in whatever order they come
// and go.
func TestListOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l, want := newList(), map[types.UID]*waitingPod{}
	for step := range 2000 {
		pod := schedtest.Pod(fmt.Sprintf("pod-%02d", rng.IntN(40))).Obj()
		if rng.IntN(3) == 0 {
			if _, there := want[pod.UID]; l.remove(pod.UID) != there {
				t.Fatalf("step %d: removed %s: %t, want %t", step, pod.Name, !there, there)
			}
			delete(want, pod.UID)
		} else {
			pod.CreationTimestamp = metav1.NewTime(time.Unix(int64(rng.IntN(5)), 0))
			w := newWaitingPod(refused(pod, int32(rng.IntN(3))))
			l.add(w)
			want[pod.UID] = w
		}
		if len(l.order) != len(want) {
			t.Fatalf("step %d: %d pods are on the list, want %d", step, len(l.order), len(want))
		}
		for i, w := range l.order {
			if want[w.pod.UID] != w {
				t.Fatalf("step %d: %s is on the list as it was before", step, w.pod.Name)
			}
			if i == 0 {
				continue
			}
			b := l.order[i-1]
			if b.demand.Priority < w.demand.Priority || b.demand.Priority == w.demand.Priority && b.pod.CreationTimestamp.After(w.pod.CreationTimestamp.Time) {
				t.Fatalf("step %d: %s is before %s", step, b.pod.Name, w.pod.Name)
			}
		}
	}
}

// TestGating: the list decides which pods are gated.
func TestGating(t *testing.T) {
	tests := map[string]struct {
		refused   func(*RefusedPod)
		gate      gate
		now       func(*v1.Pod) // the pod's state when the queue calls
		wantGated bool
		wantOff   bool // it is off the list after that
	}{
		"before the waker has looked":      {gate: unjudged, wantGated: true},
		"no node would take it":            {gate: shut, wantGated: true},
		"it was woken":                     {gate: open},
		"it is exempt":                     {gate: shut, refused: func(r *RefusedPod) { r.Exempt = true }},
		"it is nominated meanwhile":        {gate: shut, now: func(p *v1.Pod) { p.Status.NominatedNodeName = "n" }},
		"its spec is another":              {gate: shut, now: func(p *v1.Pod) { p.Generation++ }, wantOff: true},
		"it asks by annotation for others": {gate: shut, now: func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }, wantOff: true},
		"its status is another":            {gate: shut, now: func(p *v1.Pod) { p.Status.Message = "m" }, wantGated: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := schedtest.Pod("p").Obj()
			r := refused(pod, 0)
			if tc.refused != nil {
				tc.refused(r)
			}
			l, w := newList(), newWaitingPod(r)
			l.add(w)
			l.set(w, tc.gate)
			now := pod.DeepCopy()
			if tc.now != nil {
				tc.now(now)
			}
			gated, inMetric := l.gated(now)
			if gated != tc.wantGated || inMetric {
				t.Errorf("gated %t, in the metric %t; want %t, false", gated, inMetric, tc.wantGated)
			}
			if on := l.has(pod.UID); on == tc.wantOff {
				t.Errorf("on the list: %t, want %t", on, !tc.wantOff)
			}
			if !tc.wantGated {
				return
			}
			if _, inMetric := l.gated(now); !inMetric {
				t.Error("the queue kept the pod out before, and its metric does not have it")
			}
			if wanted := l.set(w, open); !wanted {
				t.Error("nobody remembers that the queue wanted to try the pod")
			}
		})
	}
}

// TestGatedVersions: a version of a pod with other requests ends the wait, also after one with the same
// requests.
func TestGatedVersions(t *testing.T) {
	pod := schedtest.Pod("p").Obj()
	pod.ResourceVersion = "1"
	l := newList()
	l.add(newWaitingPod(refused(pod, 0)))
	told, changed := pod.DeepCopy(), pod.DeepCopy()
	told.ResourceVersion, told.Status.Message = "2", "m"
	changed.ResourceVersion, changed.Annotations = "3", map[string]string{"a": "b"}
	for _, tc := range []struct {
		pod       *v1.Pod
		wantGated bool
	}{{pod, true}, {told, true}, {told, true}, {pod, true}, {changed, false}} {
		if gated, _ := l.gated(tc.pod); gated != tc.wantGated {
			t.Errorf("resourceVersion %s is gated: %t, want %t", tc.pod.ResourceVersion, gated, tc.wantGated)
		}
	}
	if l.has(pod.UID) {
		t.Error("it is on the list still")
	}
}

// TestChangesTakenOnce: a pod is taken once from the added or removed ones.
func TestChangesTakenOnce(t *testing.T) {
	l := newList()
	first, second := newWaitingPod(refused(schedtest.Pod("p").Obj(), 0)), newWaitingPod(refused(schedtest.Pod("p").Obj(), 0))
	l.add(first)
	l.add(second) // it was refused again
	all, added, removed := l.take()
	if !slices.Equal(all, []*waitingPod{second}) || !slices.Equal(added, []*waitingPod{first, second}) || !slices.Equal(removed, []*waitingPod{first}) {
		t.Errorf("all %v, added %v, removed %v", all, added, removed)
	}
	if !l.isOver(first) || l.isOver(second) {
		t.Error("the pod waits as it was refused first")
	}
	if all, added, removed := l.take(); len(all) != 1 || len(added)+len(removed) != 0 {
		t.Errorf("taken again: all %v, added %v, removed %v", all, added, removed)
	}
}

// TestReturnedLease: a renewed Lease is not lost in a later change.
func TestReturnedLease(t *testing.T) {
	c := changes{due: make(chan struct{}, 1)}
	n, at := &Node{}, time.Unix(1, 0)
	c.add(n, change{at: at, leaseBack: true})
	c.add(n, change{at: at.Add(1)})
	got := map[*Node]change{}
	c.take(got)
	c.add(n, change{at: at.Add(2)})
	c.take(got)
	if want := (change{at: at.Add(2), leaseBack: true}); got[n] != want {
		t.Errorf("got %+v, want %+v", got[n], want)
	}
}

// TestGatedAllocations: Gated does not allocate memory. The scheduling queue calls it for every waiting
// pod at each event.
func TestGatedAllocations(t *testing.T) {
	k := New(nil, &fakeCluster{})
	pod := schedtest.Pod("p").Obj()
	k.list.add(newWaitingPod(refused(pod, 0)))
	if n := testing.AllocsPerRun(100, func() { k.Gated(pod) }); n > 0 {
		t.Errorf("%v allocations each time, want none", n)
	}
}

// BenchmarkGated measures the cost of a waiting pod of 250 KiB to the scheduling queue, under its lock,
// at each event that could help the pod. The waiting version has the refusal in its status.
func BenchmarkGated(b *testing.B) {
	l := newList()
	var pods []*v1.Pod
	for i := range 200 {
		pod := schedtest.Pod(fmt.Sprintf("pod-%03d", i)).Obj()
		pod.ResourceVersion, pod.Annotations = "1", map[string]string{}
		for n := range 512 {
			pod.Annotations[fmt.Sprintf("example.com/x%03d", n)] = strings.Repeat("v", 480)
		}
		l.add(newWaitingPod(refused(pod, 0)))
		now := pod.DeepCopy()
		now.ResourceVersion = "2"
		for key, value := range now.Annotations {
			now.Annotations[key] = strings.Clone(value)
		}
		pods = append(pods, now)
	}
	for i := 0; b.Loop(); i++ {
		if gated, _ := l.gated(pods[i%len(pods)]); !gated {
			b.Fatal("a pod that no node would take is not gated")
		}
	}
}
