// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// settleIn is how long a pod that failed takes to be back in the queue, from
// where it can be activated. The framework puts it there right after PostFilter.
const settleIn = 10 * time.Millisecond

// widened holds the pods whose next cycle looks at all nodes, because every node
// of the list was refused by some other plugin.
type widened struct {
	mu sync.Mutex
	// pod UID -> whether the cycle that looks at all nodes has begun. Whoever is
	// activated after that goes round again: list, refusal, all nodes, without end.
	pods map[types.UID]bool
	// back are pods to be activated once they are in the queue again.
	back chan *v1.Pod
}

// maxBack is how many failed pods may wait to be activated; a pod more waits for
// its backoff instead.
const maxBack = 1024

func newWidened() *widened {
	return &widened{pods: map[types.UID]bool{}, back: make(chan *v1.Pod, maxBack)}
}

// begin reports whether the pod's cycle, which begins now, is to look at all nodes.
func (w *widened) begin(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.pods[uid]
	if ok {
		w.pods[uid] = true
	}
	return ok
}

// due reports whether the cycle that looks at all nodes is still to come.
func (w *widened) due(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	begun, ok := w.pods[uid]
	return ok && !begun
}

func (w *widened) add(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[uid] = false
}

func (w *widened) remove(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// list returns the marked pods in order.
func (w *widened) list() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.pods))
}

// Widened reports whether the pod's next cycle looks at all nodes.
func (s *State) Widened(uid types.UID) bool {
	s.widened.mu.Lock()
	defer s.widened.mu.Unlock()
	_, ok := s.widened.pods[uid]
	return ok
}

// Widen makes the pod's next cycle look at all nodes and sees that it comes at
// once. The activation now counts if anything delays the pod's way back.
func (s *State) Widen(logger klog.Logger, pod *v1.Pod, h fwk.Handle) {
	s.recovered.Add(1)
	s.widened.add(pod.UID)
	h.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
	select {
	case s.widened.back <- pod:
	default: // the pod waits for its backoff
	}
}

// EndWiden takes the mark away.
func (s *State) EndWiden(uid types.UID) { s.widened.remove(uid) }

// activateWidened moves failed pods from their backoff to the active queue.
func (s *State) activateWidened(ctx context.Context, h fwk.Handle) {
	for {
		var pod *v1.Pod
		select {
		case <-ctx.Done():
			return
		case pod = <-s.widened.back:
		}
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(settleIn):
		}
		pods := map[string]*v1.Pod{}
		for left := len(s.widened.back); ; left-- {
			if s.pods.pod(pod.Namespace, pod.Name, pod.UID) == nil {
				s.widened.remove(pod.UID) // deleted before it was marked
			}
			if s.widened.due(pod.UID) {
				pods[pod.Namespace+"/"+pod.Name] = pod
			}
			if left == 0 {
				break
			}
			pod = <-s.widened.back
		}
		h.Activate(klog.FromContext(ctx), pods)
	}
}
