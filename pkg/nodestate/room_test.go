// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// full returns a State in which as many choices are being written as may be.
func full(t *testing.T) (*State, []*v1.Pod) {
	t.Helper()
	s := New(testConfig(), clock.RealClock{})
	var pods []*v1.Pod
	for i := range maxWriting {
		pod := gpuPod(fmt.Sprint("p", i), 1)
		pods = append(pods, pod)
		s.mu.Lock()
		s.insert(&claim{uid: pod.UID, namespace: pod.Namespace, name: pod.Name, node: "n", alloc: &Allocation{}})
		s.mu.Unlock()
		s.Announced(pod.UID, "n")
		s.Announced(pod.UID, "n") // by the other plugin
	}
	if n := s.writing.Load(); n != maxWriting {
		t.Fatalf("%d choices are being written, want %d", n, maxWriting)
	}
	return s, pods
}

func TestANewChoiceWaitsWhileManyAreWritten(t *testing.T) {
	ends := map[string]func(s *State, pod *v1.Pod){
		"until one fails": func(s *State, pod *v1.Pod) { s.Unreserve(pod.UID, "n") },
		"until one fails without a clear answer": func(s *State, pod *v1.Pod) {
			s.BindingBegan(pod.UID, "n")
			s.Unreserve(pod.UID, "n")
		},
		"until one is bound": func(s *State, pod *v1.Pod) {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "n" // and somebody dropped its annotations
			s.podChanged(bound)
		},
		"until one is deleted": func(s *State, pod *v1.Pod) { s.podGone(pod.UID) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s, pods := full(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.AwaitRoom(t.Context())
			}()
			end(s, pods[0])
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatal("still waiting")
			}
			if n := s.writing.Load(); n != maxWriting-1 {
				t.Errorf("%d choices are being written, want %d", n, maxWriting-1)
			}
		})
	}
}

func TestNobodyWaitsForEver(t *testing.T) {
	s, _ := full(t)
	start := time.Now()
	s.AwaitRoom(t.Context())
	if waited := time.Since(start); waited < maxRoomWait {
		t.Errorf("waited %v although nothing was done, want %v", waited, maxRoomWait)
	}
}
