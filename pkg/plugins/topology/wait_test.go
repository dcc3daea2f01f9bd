// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// told marks a pod as deleted, with this rest of its grace period.
func told(pod *v1.Pod, grace, left time.Duration) {
	withGrace(pod, grace)
	pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(left)))
	pod.DeletionGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
}

// withGrace sets a pod's grace period.
func withGrace(pod *v1.Pod, grace time.Duration) {
	pod.Spec.TerminationGracePeriodSeconds = new(int64(grace / time.Second))
}

// evictedFor marks a pod as evicted by the scheduler.
func evictedFor(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
	}}
}

// nominate applies the result of PostFilter as the scheduler does.
func (e *testEnv) nominate(pod *v1.Pod, result *fwk.PostFilterResult) string {
	e.tb.Helper()
	if result == nil || result.NominatingInfo == nil || result.NominatedNodeName == "" {
		return ""
	}
	pi, err := framework.NewPodInfo(pod)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.queue.Add(klog.Background(), pod)
	e.queue.AddNominatedPod(klog.Background(), pi, result.NominatingInfo)
	return result.NominatedNodeName
}

// fits runs the filters for a pod on the first node.
func (e *testEnv) fits(pod *v1.Pod) *fwk.Status {
	e.tb.Helper()
	state := e.cycle(pod)
	info, err := e.snapshot.NodeInfos().Get(e.nodes[0].Name)
	if err != nil {
		e.tb.Fatal(err)
	}
	return e.fw.RunFilterPluginsWithNominatedPods(e.ctx, state, pod, info)
}

// TestForeignVictim: another preemptor's victim is not evicted for this pod. The API server does not show
// the victim as ending yet, or its eviction failed: the pod may wait for it, but it has a higher priority
// than the pod, which must not evict it.
func TestForeignVictim(t *testing.T) {
	for name, victim := range map[string]int32{"that matters more": 80, "that matters as much": 60, "that matters less": 50} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			s.tenant("whole", 0, victim, 4, 0, 1, 2, 3)
			s.show()
			first, second := asks("first", 100, 2).Obj(), asks("second", 60, 2).Obj()
			s.known([]*v1.Pod{first, second})
			result, evicted, status := s.postFilter(first)
			if !status.IsSuccess() || !slices.Equal(evicted, []string{"whole"}) || s.nominate(first, result) == "" {
				t.Fatalf("the first pod: %v, evicted %v", status, evicted)
			}
			result, evicted, status = s.postFilter(second)
			if len(evicted) > 0 || !status.IsSuccess() || s.nominate(second, result) != "node-0" {
				t.Errorf("the second pod: %v, nominated %v, evicted %v; want it to wait for a pod that goes for another", status, result, evicted)
			}
		})
	}
}

// TestTerminationWaitBounds: the wait for ending pods is bounded. Some pods are ending, with the grace
// period that their owner chose, and others could be evicted.
func TestTerminationWaitBounds(t *testing.T) {
	tests := map[string]struct {
		arrange func(s *testEnv)
		node    string // nominated for
		evicted []string
		says    string
	}{
		"one that takes hours is not waited for": {
			arrange: func(s *testEnv) {
				told(s.tenant("slow", 0, 9, 4, 0, 1, 2, 3), 4*time.Hour, 3*time.Hour)
				s.tenant("low", 1, 0, 4, 0, 1, 2, 3)
			},
			node: "node-1", evicted: []string{"low"},
		},
		"nor one on the same node": {
			arrange: func(s *testEnv) {
				told(s.tenant("slow", 0, 0, 2, 0, 1), 4*time.Hour, 3*time.Hour)
				s.tenant("low", 0, 1, 2, 2, 3)
				s.tenant("busy", 1, 9, 4, 0, 1, 2, 3)
			},
			node: "node-0", evicted: []string{"low"},
		},
		"one that takes a minute is": {
			arrange: func(s *testEnv) {
				told(s.tenant("going", 0, 9, 4, 0, 1, 2, 3), 4*time.Hour, time.Minute)
				s.tenant("low", 1, 0, 4, 0, 1, 2, 3)
			},
			node: "node-0", says: "default/going",
		},
		"the node where they end sooner comes first": {
			arrange: func(s *testEnv) {
				told(s.tenant("later", 0, 0, 4, 0, 1, 2, 3), 5*time.Minute, 4*time.Minute)
				told(s.tenant("sooner", 1, 9, 4, 0, 1, 2, 3), 5*time.Minute, time.Minute)
			},
			node: "node-1", says: "default/sooner",
		},
		"of a node the pods that end sooner": {
			arrange: func(s *testEnv) {
				told(s.tenant("later", 0, 0, 2, 0, 1), 5*time.Minute, 4*time.Minute)
				told(s.tenant("sooner", 0, 9, 2, 2, 3), 5*time.Minute, time.Minute)
				s.tenant("busy", 1, 9, 4, 0, 1, 2, 3)
			},
			node: "node-0", says: "for default/sooner to end",
		},
		"nobody is evicted who would not be gone sooner": {
			arrange: func(s *testEnv) {
				told(s.tenant("slow", 0, 9, 4, 0, 1, 2, 3), 2*time.Hour, time.Hour)
				withGrace(s.tenant("low", 1, 0, 4, 0, 1, 2, 3), 2*time.Hour)
			},
			says: "default/slow",
		},
		"who would be gone sooner is": {
			arrange: func(s *testEnv) {
				told(s.tenant("slow", 0, 9, 4, 0, 1, 2, 3), 2*time.Hour, time.Hour)
				withGrace(s.tenant("low", 1, 0, 2, 0, 1), 2*time.Hour)
				withGrace(s.tenant("middle", 1, 1, 2, 2, 3), 10*time.Minute)
			},
			node: "node-1", evicted: []string{"middle"},
		},
		"of like nodes the one whose victims end sooner": {
			arrange: func(s *testEnv) {
				withGrace(s.tenant("later", 0, 0, 4, 0, 1, 2, 3), 4*time.Hour)
				withGrace(s.tenant("sooner", 1, 0, 4, 0, 1, 2, 3), time.Minute)
			},
			node: "node-1", evicted: []string{"sooner"},
		},
		"of like victims on a node those that end sooner": {
			arrange: func(s *testEnv) {
				s.tenant("busy", 1, 9, 4, 0, 1, 2, 3)
				withGrace(s.tenant("later", 0, 0, 2, 0, 1), 4*time.Hour)
				withGrace(s.tenant("sooner", 0, 0, 2, 2, 3), time.Minute)
			},
			node: "node-0", evicted: []string{"sooner"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged", "a100-pcie-4-bridged")
			tc.arrange(s)
			s.show()
			pod := linkedPair("p", 5).Obj()
			s.known([]*v1.Pod{pod})
			result, evicted, status := s.postFilter(pod)
			if node := s.nominate(pod, result); node != tc.node || !slices.Equal(evicted, tc.evicted) || !strings.Contains(status.Message(), tc.says) {
				t.Errorf("node %q, evicted %v, %q; want %q, %v, %q", node, evicted, status.Message(), tc.node, tc.evicted, tc.says)
			}
			for _, h := range s.state.Nominator.NominatedReservations() {
				if wait := h.Until.Sub(s.clock.Now()); wait > 10*time.Minute {
					t.Errorf("%v of %s are held for %v", h.GPUs, h.Node, wait)
				}
			}
		})
	}
}

// TestSelfMadeRoom: a pod that waits for no other is tried again. Ending pods make room, later than it may
// wait for them. No event reports that, so the scheduling queue must have the pod.
func TestSelfMadeRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		going      bool
		policy     v1.PreemptionPolicy
		wantRefuse bool
	}{
		"pods are going": {going: true, policy: v1.PreemptLowerPriority},
		"pods are going, and it may evict nobody": {going: true, policy: v1.PreemptNever},
		"nobody is going":                         {policy: v1.PreemptLowerPriority, wantRefuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			busy := s.tenant("busy", 0, 9, 4, 0, 1, 2, 3)
			if tc.going {
				told(busy, 4*time.Hour, 3*time.Hour)
			}
			s.show()
			pod := linkedPair("p", 5).PreemptionPolicy(tc.policy).Obj()
			s.known([]*v1.Pod{pod})
			if result, evicted, status := s.postFilter(pod); s.nominate(pod, result) != "" || len(evicted) > 0 {
				t.Fatalf("%v, evicted %v; want it to wait for nobody", status, evicted)
			}
			if status := s.plugin.PreEnqueue(s.ctx, pod); status.IsSuccess() == tc.wantRefuse {
				t.Errorf("PreEnqueue says %v, want it refused: %t", status, tc.wantRefuse)
			}
		})
	}
}

// TestStableWaitReason: the reason of a wait has a constant text. It is the pod's condition, and each
// attempt that changes it costs a write.
func TestStableWaitReason(t *testing.T) {
	for name, left := range map[string]time.Duration{"for pods that end soon": time.Minute, "for nobody": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			told(s.tenant("going", 0, 9, 4, 0, 1, 2, 3), 4*time.Hour, left)
			s.show()
			pod := linkedPair("p", 5).Obj()
			s.known([]*v1.Pod{pod})
			_, _, first := s.postFilter(pod)
			s.clock.Add(time.Second)
			if _, _, again := s.postFilter(pod); first.Message() == "" || again.Message() != first.Message() {
				t.Errorf("first %q, then %q", first.Message(), again.Message())
			}
		})
	}
}

// TestOwnVictimWait: a pod does not wait for its own victims without end: it chose them, so it gives them
// some time of their grace period, and then looks for others.
func TestOwnVictimWait(t *testing.T) {
	for name, tc := range map[string]struct {
		gone time.Duration // since its deletion
		want []string
	}{
		"a minute after they were told":        {gone: time.Minute},
		"when they had the time to end in":     {gone: time.Hour, want: []string{"other"}},
		"when they should have ended, and not": {gone: 5 * time.Hour, want: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			victim := s.tenant("victim", 0, 0, 2, 0, 1)
			told(victim, 4*time.Hour, 4*time.Hour-tc.gone)
			evictedFor(victim)
			s.tenant("other", 0, 1, 2, 2, 3)
			s.show()
			pod := linkedPair("p", 5).NominatedNodeName("node-0").Obj()
			s.known([]*v1.Pod{pod})
			if _, evicted, status := s.postFilter(pod); !slices.Equal(evicted, tc.want) {
				t.Errorf("%v, evicted %v; want %v", status, evicted, tc.want)
			}
		})
	}
}

// record adds an entry by the first node's agent that kubelet has given a pod these GPUs.
func (e *testEnv) record(uid string, version int, positions ...int) {
	e.tb.Helper()
	_, obj := nodeOf(e.tb, "node-0", "a100-pcie-4-bridged")
	obj.ResourceVersion = strconv.Itoa(version)
	if len(positions) > 0 {
		a := v1alpha1.Allocation{PodUID: "gone", Namespace: "default", Pod: uid, Container: "main", Resource: v1alpha1.DefaultResource, State: "confirmed"}
		for _, i := range positions {
			a.GPUs = append(a.GPUs, obj.Spec.GPUs[i].ID)
		}
		obj.Status.Allocations = []v1alpha1.Allocation{a}
	}
	if _, err := e.state.Graphs.Apply(obj); err != nil {
		e.tb.Fatal(err)
	}
}

// goes makes and deletes a pod of the first node in the informer.
func (e *testEnv) goes(name string) {
	e.tb.Helper()
	pods := e.client.CoreV1().Pods("default")
	gone := asks(name, 0, 2).Node("node-0").Obj()
	if _, err := pods.Create(e.ctx, gone, metav1.CreateOptions{}); err != nil {
		e.tb.Fatal(err)
	}
	if err := pods.Delete(e.ctx, name, metav1.DeleteOptions{}); err != nil {
		e.tb.Fatal(err)
	}
	testkit.Soon(e.tb, "the informer hears of the deletion", func() bool { return e.state.Allocations.Gone(gone.UID) })
}

// TestHeldRelease: the devices that a pod waits for are held for it. Kubelet is about to release two GPUs.
// A pod that comes between the release and the pod's next cycle must not take them, unless it has a higher
// priority.
func TestHeldRelease(t *testing.T) {
	s := newTestEnv(t, "a100-pcie-4-bridged")
	s.tenant("low", 0, 0, 2, 2, 3)
	s.show()
	s.record("gone", 2, 0, 1)
	s.goes("gone")
	pod := linkedPair("p", 5).Obj()
	s.known([]*v1.Pod{pod})
	result, evicted, status := s.postFilter(pod)
	if node := s.nominate(pod, result); node != "node-0" || len(evicted) > 0 || !strings.Contains(status.Message(), ErrReasonReleasing) {
		t.Fatalf("%v, nominated for %q, evicted %v; want it to wait on node-0", status, node, evicted)
	}
	if holds := s.state.Nominator.NominatedReservations(); len(holds) != 1 || holds[0].Until.Sub(s.clock.Now()) > time.Minute {
		t.Errorf("held: %+v, want the two GPUs, for less than a minute", holds)
	}
	s.record("gone", 3) // kubelet has released them
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"less":     {pod: asks("less", 4, 1).Obj()},
		"the same": {pod: asks("same", 5, 1).Obj()},
		"more":     {pod: asks("more", 6, 1).Obj(), want: true},
		"itself":   {pod: pod, want: true},
	} {
		if status := s.fits(tc.pod); status.IsSuccess() != tc.want {
			t.Errorf("a pod that matters %s: %v, want it to fit: %t", name, status, tc.want)
		}
	}
}

// TestWaitEnd: a wait ends: if kubelet has not released the devices in time a pod is evicted, or the
// nomination ends, so that nothing is kept from others for ever.
func TestWaitEnd(t *testing.T) {
	never := linkedPair("p", 5).PreemptionPolicy(v1.PreemptNever).Obj()
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		node string
		want []string
	}{
		"a pod that may preempt does then":      {pod: linkedPair("p", 5).Obj(), node: "node-0", want: []string{"low"}},
		"one that may not is nominated no more": {pod: never},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			s.tenant("low", 0, 0, 2, 2, 3)
			s.show()
			// As after a restart: the pod is nominated, and its devices are not known.
			s.record("gone", 2, 0, 1)
			tc.pod.Status.NominatedNodeName = "node-0"
			s.known([]*v1.Pod{tc.pod})
			result, evicted, status := s.postFilter(tc.pod)
			if result == nil || result.NominatingInfo == nil || result.Mode() != fwk.ModeOverride {
				t.Fatalf("%v: the nomination stays as it is", status)
			}
			if result.NominatedNodeName != tc.node || !slices.Equal(evicted, tc.want) {
				t.Errorf("%v, nominated for %q, evicted %v; want %q, %v", status, result.NominatedNodeName, evicted, tc.node, tc.want)
			}
		})
	}
}
