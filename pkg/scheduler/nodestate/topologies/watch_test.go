// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestChangeNoticeLocking: no lock is held when a change is passed on. Its consumer takes locks of its
// own, and may call the Cache.
func TestChangeNoticeLocking(t *testing.T) {
	r := newTestEnv(t)
	told := 0
	h := r.Handler(func(Change, error) {
		told++
		if !r.mu.TryLock() {
			t.Fatalf("the lock of the Cache is held at change %d", told)
		}
		r.mu.Unlock()
	})
	obj := topologyOf(t, "n", "dgx-h100")
	h.OnAdd(obj, true)
	for i := range 300 {
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(i + 2)
		h.OnUpdate(nil, obj)
	}
	if len(r.HeldBack()) != 1 {
		t.Errorf("%d objects wait, want the node's last", len(r.HeldBack()))
	}
	h.OnDelete(obj)
	if told != 302 {
		t.Errorf("told of %d events, want 302", told)
	}
}

// TestLockFreeReaders: readers need no lock. Entries are read while two nodes publish one device and
// leave in turn, for the race detector.
func TestLockFreeReaders(t *testing.T) {
	r := newTestEnv(t)
	first, second := topologyOf(t, "n", "dgx-h100"), topologyOf(t, "other", "dgx-h100")
	second.Spec.GPUs[2].ID = first.Spec.GPUs[2].ID
	nodes := []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: first.Spec.NodeUID}}}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for e := r.Entry("n"); ; {
				select {
				case <-done:
					return
				default:
				}
				if n := e.Node(); n != nil && n.Accels[0].Healthy.Len() == 0 {
					t.Error("a node without any healthy GPU was seen")
				}
				r.CheckGraph(e, e.Node(), first.Spec.NodeUID)
				r.Reports(nodes, nil)
				r.HeldBack()
			}
		})
	}
	for range 100 {
		_, _ = r.Apply(first)
		_, _ = r.Apply(second)
		r.Ended()
		r.Remove("n", first.UID)
		r.Remove("other", second.UID)
	}
	close(done)
	readers.Wait()
}
