// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// list has the waiting pods: those with GPUs that no node took when they were last tried. The
// waker goes through it when something comes free. Nothing else is locked while mu is: the
// scheduling queue asks under its own lock.
type list struct {
	mu    sync.Mutex // guards all below
	pods  map[types.UID]*waitingPod
	order []*waitingPod // the most important first, then the oldest
	// added are those that were refused since the waker looked last, and removed those that
	// are on the list no more.
	added, removed []*waitingPod
}

// waitingPod is one such pod. Fields without a note are written once.
type waitingPod struct {
	pod     *v1.Pod
	demand  *placement.Demand
	rules   candidates.Rules
	request string // signature of what it asks
	// refused is when the cycle began in which no node took it.
	refused time.Time
	// exempt: it is never gated; see RefusedPod.
	exempt bool

	gate     gate // guarded by list.mu
	wanted   bool // the queue wanted to try it while it was gated; guarded by list.mu
	inMetric bool // see RefusedPod; guarded by list.mu
	over     bool // not on the list any more; guarded by list.mu
	// same is the resourceVersion of the last version of the pod that was found to ask for the same;
	// guarded by list.mu.
	same string

	// The waker's alone: when it woke the pod last, how often since the node had more, and
	// for which node, nil once that is over.
	woken  time.Time
	tries  int
	target *nodeState
	// Whether a choice of the pod is on its way to be bound, and when an attempt came to
	// nothing without a refusal by nodes: for the waker that is as good as one.
	binding bool
	failed  time.Time
}

// gate says whether a waiting pod may be tried.
type gate uint8

const (
	unjudged gate = iota // shut until the waker has looked, which it does at once
	shut                 // no node would take it
	open                 // it was woken, or what keeps it out is nothing of ours
)

// RefusedPod is a pod that no node took, with what its cycle said.
type RefusedPod struct {
	Pod    *v1.Pod
	Demand placement.Demand
	Began  time.Time // of the cycle
	// Exempt: the pod is never gated. It is nominated, devices it could use are being
	// released, or it has a choice in doubt that it may take again. Only the scheduling
	// queue decides when it is tried.
	Exempt bool
	// Closed are the nodes that are kept for gangs; it may be nil.
	Closed *candidates.Closed
	// InMetric: kube-scheduler's metric unschedulable_pods has the pod under our plugin,
	// which is among those that refused nodes.
	InMetric bool
}

func newWaitingPod(r *RefusedPod) *waitingPod {
	d := r.Demand
	w := &waitingPod{
		pod: r.Pod, demand: &d, rules: candidates.NewRules(r.Pod, d.Request, r.Closed), request: r.Pod.Spec.SchedulerName + " " + d.Signature(),
		refused: r.Began, exempt: r.Exempt, inMetric: r.InMetric,
	}
	if w.exempt {
		w.gate = open
	}
	return w
}

func newList() *list { return &list{pods: map[types.UID]*waitingPod{}} }

func (l *list) add(w *waitingPod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.pods[w.pod.UID]; ok {
		l.end(old)
	}
	l.pods[w.pod.UID] = w
	i, _ := slices.BinarySearchFunc(l.order, w, (*waitingPod).compare)
	l.order = slices.Insert(l.order, i, w)
	l.added = append(l.added, w)
}

// compare puts the pod first that is to be woken first.
func (w *waitingPod) compare(o *waitingPod) int {
	return cmp.Or(
		cmp.Compare(o.demand.Priority, w.demand.Priority), w.pod.CreationTimestamp.Compare(o.pod.CreationTimestamp.Time),
		strings.Compare(w.pod.Namespace, o.pod.Namespace), strings.Compare(w.pod.Name, o.pod.Name), strings.Compare(string(w.pod.UID), string(o.pod.UID)),
	)
}

// end needs l.mu.
func (l *list) end(w *waitingPod) {
	delete(l.pods, w.pod.UID)
	if i, ok := slices.BinarySearchFunc(l.order, w, (*waitingPod).compare); ok {
		l.order = slices.Delete(l.order, i, i+1)
	}
	w.over = true
	l.removed = append(l.removed, w)
}

// remove takes a pod off the list, and reports whether it was on it.
func (l *list) remove(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[uid]
	if ok {
		l.end(w)
	}
	return ok
}

// gated is Waker.Gated.
func (l *list) gated(pod *v1.Pod) (gated, inMetric bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[pod.UID]
	if !ok || w.gate == open || pod.Status.NominatedNodeName != "" {
		return false, false
	}
	if version := pod.ResourceVersion; version == "" || version != w.same {
		if !sameWishes(pod, w.pod) {
			l.end(w)
			return false, false
		}
		w.same = version
	}
	inMetric, w.inMetric, w.wanted = w.inMetric, true, true
	return true, inMetric
}

// sameWishes reports whether two versions of a pod fare alike on every node: its
// generation counts changes of the spec.
func sameWishes(a, b *v1.Pod) bool {
	return a == b || a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations)
}

// take returns the list in order, and what was added and removed since the last call.
func (l *list) take() (all, added, removed []*waitingPod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added, removed = l.added, l.removed
	l.added, l.removed = nil, nil
	return slices.Clone(l.order), added, removed
}

// isOver reports whether the waiting pod is on the list no more.
func (l *list) isOver(w *waitingPod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.over
}

// has reports whether a pod is on the list.
func (l *list) has(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.pods[uid]
	return ok
}

// idle returns those whose gate is shut and who may have another try, and of these whom the
// queue wanted to try, each from who had none for the longest time on. total is how many are on
// the list.
func (l *list) idle(now time.Time) (all, wanted []*waitingPod, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		alone := now.Sub(w.refused)
		switch {
		case w.gate != shut:
		case w.wanted && alone >= retryEvery:
			all, wanted = append(all, w), append(wanted, w)
		case alone >= RetryAfter:
			all = append(all, w)
		}
	}
	longest := func(a, b *waitingPod) int { return a.refused.Compare(b.refused) }
	slices.SortStableFunc(all, longest)
	slices.SortStableFunc(wanted, longest)
	return all, wanted, len(l.order)
}

// set moves a waiting pod's gate, and reports whether the queue wanted to try it meanwhile. That
// is remembered until the pod may be tried.
func (l *list) set(w *waitingPod, g gate) (wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.exempt {
		g = open
	}
	wanted, w.gate, w.wanted = w.wanted, g, w.wanted && g != open
	return wanted
}

// wantAll has those whose gate is shut among the next that have another try: the world is
// another, and so may be the reason that they show.
func (l *list) wantAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.wanted = w.wanted || w.gate == shut
	}
}

// openAll lets every pod be tried, by and by.
func (l *list) openAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.gate, w.wanted = open, false
	}
}

// isGated reports whether a pod is on the list and kept from being tried.
func (l *list) isGated(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[uid]
	return ok && w.gate != open
}

// count returns how many pods are on the list, and how many of them are kept from being tried.
func (l *list) count() (total, gated int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		if w.gate != open {
			gated++
		}
	}
	return len(l.order), gated
}
