// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// assumed has the pods that kube-scheduler's cache has on a node though no watch has shown them there: it
// assumes them from their Reserve on. They leave that cache when they are seen bound, when their attempt
// fails, and when they are seen deleted. None of these events comes for a pod that is made again under
// its name while the watch of pods is broken: after the next list it is an update from one UID to the
// other. If the first pod was bound by then, its place is never freed again
// (kubernetes/kubernetes#141255), and kube-scheduler has to begin with an empty cache. It ends itself if
// it finds such a pod on another node than before; this type ends it here.
type assumed struct {
	corrupt func(pod *v1.Pod) // ends the process

	mu   sync.Mutex
	pods map[types.UID]step
}

// step is how far an assumed pod has come.
type step string

const (
	reserved step = "reserved" // if its attempt fails, the cache forgets it
	replaced step = "replaced" // likewise, but another pod has its name
	bound    step = "bound"    // only an event makes the cache forget it
	gone     step = "gone"     // seen deleted; its attempt goes on
)

func newAssumed(corrupt func(*v1.Pod)) *assumed {
	return &assumed{corrupt: corrupt, pods: map[types.UID]step{}}
}

// endProcess logs the reason and ends the process, as kube-scheduler does: it is started again, or a
// standby leads.
func endProcess(pod *v1.Pod) {
	klog.ErrorS(nil, "A pod that was bound here was replaced before the watch of pods showed that. Scheduler cache is corrupted: its GPUs would be given to nobody. Ending, to begin with a new one",
		"pod", klog.KObj(pod), "uid", pod.UID)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// reserve records a pod's Reserve.
func (a *assumed) reserve(uid types.UID) {
	a.mu.Lock()
	a.pods[uid] = reserved
	a.mu.Unlock()
}

// forget records that the cache forgets a pod, or has it from the watch.
func (a *assumed) forget(uid types.UID) {
	a.mu.Lock()
	delete(a.pods, uid)
	a.mu.Unlock()
}

// leave records that a pod was seen deleted, for as long as its attempt goes on: it may wait to be
// written for longer than other parts need to know that the pod is gone.
func (a *assumed) leave(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.pods[uid] {
	case reserved, replaced:
		a.pods[uid] = gone
	case bound:
		delete(a.pods, uid)
	case gone:
	}
}

// left reports whether a pod was seen deleted since its Reserve.
func (a *assumed) left(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[uid] == gone
}

// bind records a pod's Binding. A pod that was seen bound before has been removed already.
func (a *assumed) bind(pod *v1.Pod) {
	a.advance(pod, map[step]step{reserved: bound}, replaced)
	if a.left(pod.UID) { // seen deleted before, or meanwhile
		a.forget(pod.UID)
	}
}

// replace records that another pod has the name of one that was never seen bound.
func (a *assumed) replace(pod *v1.Pod) {
	a.advance(pod, map[step]step{reserved: replaced}, bound)
}

// advance moves a pod to its next step, and ends the process if it is both bound and replaced.
func (a *assumed) advance(pod *v1.Pod, to map[step]step, other step) {
	a.mu.Lock()
	now := a.pods[pod.UID]
	if next, ok := to[now]; ok {
		a.pods[pod.UID] = next
	}
	a.mu.Unlock()
	if now == other {
		a.corrupt(pod)
	}
}

// handler follows the pods through the informer that feeds kube-scheduler's cache, so that both get the
// same events.
func (a *assumed) handler() cache.ResourceEventHandler {
	seen := func(pod *v1.Pod) {
		if pod.Spec.NodeName != "" {
			a.forget(pod.UID)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				seen(pod)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, ok1 := old.(*v1.Pod)
			after, ok2 := obj.(*v1.Pod)
			if !ok1 || !ok2 {
				return
			}
			if before.UID != after.UID && before.Spec.NodeName == "" {
				a.replace(before)
			}
			seen(after)
		},
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				a.leave(pod.UID)
			}
		},
	}
}
