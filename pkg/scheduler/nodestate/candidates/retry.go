// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// requeueDelay is how long a pod that failed takes to be back in the scheduling queue, where it can be
	// activated. The framework puts it there right after PostFilter.
	requeueDelay = 10 * time.Millisecond
	// maxFailed is how many failed pods may wait to be activated; further pods wait for their backoff
	// instead.
	maxFailed = 1024
)

// Retries has the pods whose next cycle considers all nodes, because other plugins refused every node of
// their list. Make it with NewRetries.
type Retries struct {
	clock  clock.Clock
	failed chan *v1.Pod // to be activated once they are in the queue again
	added  atomic.Uint64

	mu sync.Mutex
	// began has for each pod whether the cycle that considers all nodes has begun. A pod that was activated
	// after that would repeat list, refusal and all nodes without end. Guarded by mu.
	began map[types.UID]bool
}

// NewRetries returns Retries without pods.
func NewRetries(clk clock.Clock) *Retries {
	return &Retries{clock: clk, failed: make(chan *v1.Pod, maxFailed), began: map[types.UID]bool{}}
}

// Add makes the pod's next cycle consider all nodes, and has Run activate the pod.
func (r *Retries) Add(pod *v1.Pod) {
	r.added.Add(1)
	r.mu.Lock()
	r.began[pod.UID] = false
	r.mu.Unlock()
	select {
	case r.failed <- pod:
	default: // the pod waits for its backoff
	}
}

// Added returns the number of lists taken back.
func (r *Retries) Added() uint64 { return r.added.Load() }

// Begin reports whether the pod's cycle, which begins now, must consider all nodes.
func (r *Retries) Begin(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.began[uid]
	if ok {
		r.began[uid] = true
	}
	return ok
}

// Has reports whether the pod's next cycle considers all nodes.
func (r *Retries) Has(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.began[uid]
	return ok
}

// Remove ends the pod's retry: it may get a list again.
func (r *Retries) Remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.began, uid)
}

// Pods returns the pods in order.
func (r *Retries) Pods() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.began))
}

// due reports whether the cycle that considers all nodes is still to come.
func (r *Retries) due(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	began, ok := r.began[uid]
	return ok && !began
}

// Run moves failed pods from their backoff to the active queue until ctx ends. exists reports whether a
// pod still exists, and activate is the scheduling queue's.
func (r *Retries) Run(ctx context.Context, exists func(*v1.Pod) bool, activate func(klog.Logger, map[string]*v1.Pod)) {
	for {
		var pod *v1.Pod
		select {
		case <-ctx.Done():
			return
		case pod = <-r.failed:
		}
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(requeueDelay):
		}
		pods := map[string]*v1.Pod{}
		for left := len(r.failed); ; left-- {
			if !exists(pod) {
				r.Remove(pod.UID) // deleted before it was added
			}
			if r.due(pod.UID) {
				pods[pod.Namespace+"/"+pod.Name] = pod
			}
			if left == 0 {
				break
			}
			pod = <-r.failed
		}
		activate(klog.FromContext(ctx), pods)
	}
}
