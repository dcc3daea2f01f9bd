// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// full returns a State in which the maximum number of allocations is being written.
func full(t *testing.T) (*State, []*v1.Pod) {
	t.Helper()
	s := New(testConfig(), clock.RealClock{})
	var pods []*v1.Pod
	for i := range maxWriting {
		pod := schedtest.Pod(fmt.Sprint("p", i)).GPUs(1).Obj()
		pods = append(pods, pod)
		s.Allocations.reservations.Add(&reservations.Reservation{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: &s.Nodes.cells.ensure("n").reserved, Allocation: &allocation.Allocation{},
		}, nil)
		s.Binder.Attempt(pod.UID, "n").Announce()
		s.Binder.Attempt(pod.UID, "n").Announce() // by the other plugin
	}
	if n := s.Allocations.reservations.Writing(); n != maxWriting {
		t.Fatalf("%d choices are being written, want %d", n, maxWriting)
	}
	return s, pods
}

// TestChoiceBackpressure: a new choice waits while many are written.
func TestChoiceBackpressure(t *testing.T) {
	ends := map[string]func(s *State, pod *v1.Pod){
		"until one fails": func(s *State, pod *v1.Pod) { s.Allocations.Forget(pod.UID, "n") },
		"until one fails without a clear answer": func(s *State, pod *v1.Pod) {
			s.Binder.Attempt(pod.UID, "n").BindingBegan()
			s.Allocations.Forget(pod.UID, "n")
		},
		"until one is bound": func(s *State, pod *v1.Pod) {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "n" // and its annotations were removed
			s.handlers.podEvent(nil, bound)
		},
		"until one is deleted": func(s *State, pod *v1.Pod) { s.podDeleted(pod.UID) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s, pods := full(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Binder.AwaitWrites(t.Context())
			}()
			end(s, pods[0])
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatal("still waiting")
			}
			if n := s.Allocations.reservations.Writing(); n != maxWriting-1 {
				t.Errorf("%d choices are being written, want %d", n, maxWriting-1)
			}
		})
	}
}

// TestWriteStarvation: no pod waits for ever.
func TestWriteStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := full(t)
		start := time.Now()
		s.Binder.AwaitWrites(t.Context())
		if waited := time.Since(start); waited != maxWritesWait {
			t.Errorf("waited %v although nothing was done, want %v", waited, maxWritesWait)
		}
	})
}

// TestWriteOrder: writes are served in order of arrival.
func TestWriteOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(testConfig(), clock.RealClock{})
		begin := func(ctx context.Context) func() {
			end, err := s.Binder.Attempt("", "").BeginWrite(ctx)
			if err != nil {
				return nil
			}
			return end
		}
		var ends []func()
		for range maxWriting {
			ends = append(ends, begin(t.Context()))
		}
		leaves, leave := context.WithCancel(t.Context())
		var order []int
		for i := range 5 {
			go func() {
				ctx := t.Context()
				if i == 2 {
					ctx = leaves
				}
				if end := begin(ctx); end != nil {
					order = append(order, i)
					end()
				}
			}()
			synctest.Wait()
		}
		if n := s.Binder.writes.queued.Load(); n != 5 {
			t.Errorf("%d wait, want 5", n)
		}
		leave()
		synctest.Wait()
		ends[0]()
		ends[0]() // no second slot becomes free
		synctest.Wait()
		if want := []int{0, 1, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
		if waiting, underWay := s.Binder.writes.queued.Load(), s.Binder.writes.underWay.Load(); waiting != 0 || underWay != maxWriting-1 {
			t.Errorf("%d wait and %d are under way, want 0 and %d", waiting, underWay, maxWriting-1)
		}
	})
}
