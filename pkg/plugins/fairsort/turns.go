// SPDX-License-Identifier: Apache-2.0

package fairsort

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
)

// maxLines is the number of lines from which on those without waiting pods are dropped.
const maxLines = 1024

// keepGone is how long the turn of a deleted or bound pod is kept: the scheduling queue may get the event
// later than this plugin, and a turn must not change while the pod is in the queue's heap.
const keepGone = time.Minute

// Turns numbers the pods of the scheduling queue, as start-time fair queueing does: a pod's turn is one
// after the last waiting one in its line, and not before that of the pod that was tried last. Each
// priority has its own turns. The scheduler profiles of a process share one, as they share the queue. Make
// it with NewTurns.
type Turns struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	pods    map[types.UID]*turn // guarded by mu
	gone    []gonePod           // in the order of their times; guarded by mu
	lines   map[line]*waiting   // guarded by mu
	dropped time.Time           // when lines were last dropped; guarded by mu
	now     map[int32]int64     // priority -> turn of the pod that was tried last; guarded by mu
}

// line is a queue of pods: those of a namespace and priority. Pods that were tried before have a separate
// line, so that a pod that is woken does not wait for all that its namespace has created since.
type line struct {
	namespace string
	priority  int32
	again     bool
}

// waiting holds the pods of a line.
type waiting struct {
	turns map[types.UID]int64
	tried int64 // of the pod that was tried last
	last  int64 // the greatest of turns and tried
}

// turn is the place of a pod among those of its priority. It does not change while the pod is in the queue.
type turn struct {
	at   int64
	line line
	gone bool // the pod no longer waits
}

// gonePod is a deleted or bound pod, with the time at which that was seen.
type gonePod struct {
	uid types.UID
	at  time.Time
}

// NewTurns returns the Turns of an empty queue.
func NewTurns(clk clock.PassiveClock) *Turns {
	return &Turns{clock: clk, pods: map[types.UID]*turn{}, lines: map[line]*waiting{}, now: map[int32]int64{}}
}

// both returns the turns of two pods. If both get one now, the first gets it first if it has been in the
// queue for longer, and else the second: of two with equal times, the queue passes the later one first.
func (t *Turns) both(first, second fwk.QueuedPodInfo, longer bool) (x, y turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if longer {
		x = t.of(first)
		return x, t.of(second)
	}
	y = t.of(second)
	return t.of(first), y
}

// of returns the turn of a pod, which is assigned at the first call. The caller holds t.mu.
func (t *Turns) of(info fwk.QueuedPodInfo) turn {
	pod := info.GetPodInfo().GetPod()
	if have := t.pods[pod.UID]; have != nil {
		return *have
	}
	t.forget()
	l := line{namespace: pod.Namespace, priority: corev1.PodPriority(pod), again: info.GetAttempts() > 0}
	w := t.lines[l]
	if w == nil {
		t.dropLines()
		w = &waiting{turns: map[types.UID]int64{}, tried: -1, last: -1}
		t.lines[l] = w
	}
	out := &turn{at: max(t.now[l.priority], w.last+1), line: l}
	w.turns[pod.UID], w.last, t.pods[pod.UID] = out.at, out.at, out
	return *out
}

// tried records that a pod has left the queue, to be tried.
func (t *Turns) tried(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.pods[uid]; have != nil {
		t.leave(uid, have, true)
		delete(t.pods, uid)
	}
}

// bound records that another process has bound a pod. Its turn is over, so that a process that becomes
// leader continues from there.
func (t *Turns) bound(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.pods[uid]; have != nil && !have.gone {
		t.keep(uid, have, true)
	}
}

// deleted records that a pod was deleted. Its place in the line is free for the next one.
func (t *Turns) deleted(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.pods[uid]; have != nil && !have.gone {
		t.keep(uid, have, false)
	}
}

// keep marks a pod as no longer waiting, and keeps its turn for keepGone. The caller holds t.mu.
func (t *Turns) keep(uid types.UID, have *turn, tried bool) {
	t.leave(uid, have, tried)
	have.gone = true
	t.gone = append(t.gone, gonePod{uid, t.clock.Now()})
	t.forget()
}

// leave removes a pod from its line, tried or not. The caller holds t.mu.
func (t *Turns) leave(uid types.UID, have *turn, tried bool) {
	if have.gone {
		return
	}
	w := t.lines[have.line]
	delete(w.turns, uid)
	if tried {
		w.tried = max(w.tried, have.at)
		t.now[have.line.priority] = max(t.now[have.line.priority], have.at)
	}
	if have.at != w.last {
		return
	}
	w.last = w.tried
	for _, at := range w.turns {
		w.last = max(w.last, at)
	}
}

// forget drops the turns of pods that have been gone for keepGone. The caller holds t.mu.
func (t *Turns) forget() {
	old := 0
	for before := t.clock.Now().Add(-keepGone); old < len(t.gone) && t.gone[old].at.Before(before); old++ {
		if have := t.pods[t.gone[old].uid]; have != nil && have.gone {
			delete(t.pods, t.gone[old].uid)
		}
	}
	t.gone = t.gone[old:]
}

// dropLines drops the lines without waiting pods, once there are maxLines. A namespace that comes back
// starts one turn early, so that is done once a minute at most. The caller holds t.mu.
func (t *Turns) dropLines() {
	if len(t.lines) < maxLines || t.clock.Since(t.dropped) < keepGone {
		return
	}
	t.dropped = t.clock.Now()
	maps.DeleteFunc(t.lines, func(l line, w *waiting) bool { return len(w.turns) == 0 && w.tried <= t.now[l.priority] })
}
