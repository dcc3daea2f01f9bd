// SPDX-License-Identifier: Apache-2.0

package fairsort

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
)

const (
	// keepGone is of how many deleted pods the turns are kept: one may be in the queue still.
	keepGone = 1024
	// keepNamespaces is how many namespaces may be remembered of which no pod waits.
	keepNamespaces = 1024
)

// Turns number the pods of the scheduling queue, as start-time fair queueing does: a pod's turn is one after
// the last of its namespace, and not before that of the pod that was tried last. Pods of different
// priorities have turns of their own. The scheduler profiles of a process share one, as they share the
// queue. Make it with NewTurns.
type Turns struct {
	mu         sync.Mutex
	pods       map[types.UID]turn // guarded by mu
	gone       []types.UID        // deleted pods, the first one first; guarded by mu
	priorities map[int32]*clock   // guarded by mu
}

// turn is the place of a pod among those of its priority. It does not change while the pod is in the queue.
type turn struct {
	at       int64
	priority int32
}

// clock is how far the turns of one priority are.
type clock struct {
	now  int64            // of the pod that was tried last
	last map[string]int64 // of the pods of each namespace
}

// NewTurns returns the Turns of an empty queue.
func NewTurns() *Turns {
	return &Turns{pods: map[types.UID]turn{}, priorities: map[int32]*clock{}}
}

// both returns the turns of two pods. Where both get one now, the first is it first if it is in the queue for
// longer, and the second otherwise: of two that are there for as long, the queue names first who came last.
func (t *Turns) both(first, second *v1.Pod, longer bool) (x, y turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if longer {
		x = t.of(first)
		return x, t.of(second)
	}
	y = t.of(second)
	return t.of(first), y
}

// of returns the turn of a pod, which it gets at the first call. The caller holds t.mu.
func (t *Turns) of(pod *v1.Pod) turn {
	if have, ok := t.pods[pod.UID]; ok {
		return have
	}
	out := turn{priority: corev1.PodPriority(pod)}
	c := t.priorities[out.priority]
	if c == nil {
		c = &clock{last: map[string]int64{}}
		t.priorities[out.priority] = c
	}
	out.at = max(c.now, c.last[pod.Namespace]+1)
	if c.last[pod.Namespace] = out.at; len(c.last) > keepNamespaces {
		maps.DeleteFunc(c.last, func(_ string, last int64) bool { return last <= c.now })
	}
	t.pods[pod.UID] = out
	return out
}

// tried notes that a pod has left the queue, to be tried.
func (t *Turns) tried(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have, ok := t.pods[uid]; ok {
		delete(t.pods, uid)
		c := t.priorities[have.priority]
		c.now = max(c.now, have.at)
	}
}

// deleted forgets a pod, once it has left the queue too.
func (t *Turns) deleted(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.pods[uid]; !ok {
		return
	}
	if t.gone = append(t.gone, uid); len(t.gone) > 2*keepGone {
		for _, uid := range t.gone[:keepGone] {
			delete(t.pods, uid)
		}
		t.gone = append(t.gone[:0], t.gone[keepGone:]...)
	}
}
