// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// waiting is the list of pods with GPUs that no node took when they were last tried. The
// waker goes through it when something comes free. Nothing else is locked while mu is:
// the scheduling queue asks under its own lock.
type waiting struct {
	mu    sync.Mutex
	pods  map[types.UID]*waiter
	order []*waiter // the most important first, then the oldest
	// fresh are those that were refused since the waker looked last, and ended those
	// that are on the list no more.
	fresh, ended []*waiter
}

// waiter is one such pod. Fields without a note are written once.
type waiter struct {
	pod    *v1.Pod
	demand *Demand
	rules  candidates.Rules
	sig    string // of its request
	// refused is when the cycle began in which no node took it.
	refused time.Time
	// expected: something that is under way may let it in, it has been promised a node, or
	// it has a choice in doubt that it may take again. It is never shut out.
	expected bool

	gate    gate // guarded by waiting.mu
	turned  bool // PreEnqueue turned it away meanwhile; guarded by waiting.mu
	counted bool // among the pods that the plugin refused; guarded by waiting.mu
	over    bool // not on the list any more; guarded by waiting.mu

	// The waker's alone: when it woke the pod last, how often since the node had more, and
	// for which node, nil once that is over.
	woken  time.Time
	tries  int
	target *cell
	// Whether a choice of the pod is on its way to be bound, and when an attempt came to
	// nothing without a refusal by nodes: for the waker that is as good as one.
	chosen bool
	gaveUp time.Time
}

// gate says whether a waiting pod may be tried.
type gate uint8

const (
	unjudged gate = iota // shut until the waker has looked, which it does at once
	shut                 // no node would take it
	open                 // it was woken, or what keeps it out is nothing of ours
)

func newWaiting() *waiting { return &waiting{pods: map[types.UID]*waiter{}} }

// Unplaced is what a scheduling cycle knows of the pod that no node took.
type Unplaced struct {
	Pod    *v1.Pod
	Demand Demand
	// Expected: the pod is nominated, or devices it could use are being released. Only
	// the scheduling queue decides when it is tried.
	Expected bool
	// Counted: the plugin is among those that refused nodes.
	Counted bool
}

// Waits puts a pod on the list at the end of the cycle that began last. Until it is
// woken, or changed, KeepsWaiting holds it back.
func (s *State) Waits(r *Unplaced) {
	if !s.Synced() || len(r.Pod.Spec.ResourceClaims) > 0 {
		return // they will be woken together; other plugins know more of ResourceClaims
	}
	d := r.Demand
	w := &waiter{
		pod: r.Pod, demand: &d, rules: candidates.NewRules(r.Pod, d.Request), sig: r.Pod.Spec.SchedulerName + " " + d.Signature(), refused: time.Unix(0, s.swept.Load()),
		expected: r.Expected || s.triedOn(r.Pod.UID) != "", counted: r.Counted,
	}
	if w.expected {
		w.gate = open
	}
	s.waiting.add(w)
	// It may have gone, or been bound after all, while its cycle ran. The store changes
	// before its handlers run, so if they ran before the pod was on the list this sees it.
	if now := s.pods.pod(r.Pod.Namespace, r.Pod.Name, r.Pod.UID); now == nil || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		s.waiting.remove(r.Pod.UID)
	}
	s.waker.news.ring()
}

func (l *waiting) add(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.pods[w.pod.UID]; ok {
		l.end(old)
	}
	l.pods[w.pod.UID] = w
	i, _ := slices.BinarySearchFunc(l.order, w, (*waiter).compare)
	l.order = slices.Insert(l.order, i, w)
	l.fresh = append(l.fresh, w)
}

// compare puts the pod first that is to be woken first.
func (w *waiter) compare(o *waiter) int {
	return cmp.Or(
		cmp.Compare(o.demand.Priority, w.demand.Priority), w.pod.CreationTimestamp.Compare(o.pod.CreationTimestamp.Time),
		strings.Compare(w.pod.Namespace, o.pod.Namespace), strings.Compare(w.pod.Name, o.pod.Name), strings.Compare(string(w.pod.UID), string(o.pod.UID)),
	)
}

// end needs l.mu.
func (l *waiting) end(w *waiter) {
	delete(l.pods, w.pod.UID)
	if i, ok := slices.BinarySearchFunc(l.order, w, (*waiter).compare); ok {
		l.order = slices.Delete(l.order, i, i+1)
	}
	w.over = true
	l.ended = append(l.ended, w)
}

// remove takes a pod off the list, and reports whether it was on it.
func (l *waiting) remove(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[uid]
	if ok {
		l.end(w)
	}
	return ok
}

// leaves takes a pod off the list that is bound, gone or about to be, so that the next
// one has its turn.
func (s *State) leaves(uid types.UID) {
	if s.waiting.remove(uid) {
		s.waker.news.ring()
	}
}

// KeepsWaiting reports whether the pod is on the list and as it was when it was refused,
// and no node would take it. counted is whether it has been so before since it was
// last tried.
func (s *State) KeepsWaiting(pod *v1.Pod) (keeps, counted bool) {
	l := s.waiting
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[pod.UID]
	if !ok || w.gate == open || pod.Status.NominatedNodeName != "" {
		return false, false
	}
	if !sameWishes(pod, w.pod) {
		l.end(w)
		return false, false
	}
	counted, w.counted, w.turned = w.counted, true, true
	return true, counted
}

// sameWishes reports whether two versions of a pod fare alike on every node: its
// generation counts changes of the spec.
func sameWishes(a, b *v1.Pod) bool {
	return a == b || a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations)
}

// take returns the list in order, and what is new and over since the last call.
func (l *waiting) take() (all, fresh, ended []*waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh, ended = l.fresh, l.ended
	l.fresh, l.ended = nil, nil
	return slices.Clone(l.order), fresh, ended
}

// isOver reports whether the waiter is on the list no more.
func (l *waiting) isOver(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.over
}

// has reports whether a pod is on the list.
func (l *waiting) has(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.pods[uid]
	return ok
}

// idle returns those that are shut out and may have another try, and of these whom the
// queue was turned away at, each from who had none for the longest time on.
func (l *waiting) idle(now time.Time) (all, wanted []*waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		alone := now.Sub(w.refused)
		switch {
		case w.gate != shut:
		case w.turned && alone >= retryEvery:
			all, wanted = append(all, w), append(wanted, w)
		case alone >= retryAfter:
			all = append(all, w)
		}
	}
	longest := func(a, b *waiter) int { return a.refused.Compare(b.refused) }
	slices.SortStableFunc(all, longest)
	slices.SortStableFunc(wanted, longest)
	return all, wanted
}

// set moves a waiter's gate, and reports whether the queue was turned away at it
// meanwhile. That is remembered until the pod may be tried.
func (l *waiting) set(w *waiter, g gate) (turned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.expected {
		g = open
	}
	turned, w.gate, w.turned = w.turned, g, w.turned && g != open
	return turned
}

// turnAll has those that are shut out among the next that have another try: the world is
// another, and so may be the reason that they show.
func (l *waiting) turnAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.turned = w.turned || w.gate == shut
	}
}

// openAll lets every pod be tried, by and by.
func (l *waiting) openAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.gate, w.turned = open, false
	}
}

// shuts reports whether a pod is on the list and kept from being tried.
func (l *waiting) shuts(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[uid]
	return ok && w.gate != open
}

// count returns how many pods are kept from being tried and how many are not.
func (l *waiting) count() (shutOut, let int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		if w.gate == open {
			let++
		} else {
			shutOut++
		}
	}
	return shutOut, let
}
