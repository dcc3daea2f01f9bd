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

// list has the waiting pods: those with GPUs that fitted no node when they were last tried. The waker
// goes through it when devices become free. No other lock is taken while mu is held: the scheduling queue
// calls under its own lock.
type list struct {
	mu    sync.Mutex // guards all below
	pods  map[types.UID]*waitingPod
	order []*waitingPod // highest priority first, then the oldest
	// added are those that were refused since the last take, and removed those that left the list since
	// then.
	added, removed []*waitingPod
}

// waitingPod is one waiting pod. Fields without a note are written once.
type waitingPod struct {
	pod     *v1.Pod
	demand  *placement.Demand
	rules   candidates.Rules
	request string // signature of its requests
	// refused is the start of the cycle in which the pod fitted no node.
	refused time.Time
	// exempt: it is never gated; see RefusedPod.
	exempt bool

	gate     gate // guarded by list.mu
	wanted   bool // the queue tried to move it to its active part while it was gated; guarded by list.mu
	inMetric bool // see RefusedPod; guarded by list.mu
	over     bool // no longer on the list; guarded by list.mu
	// same is the resourceVersion of the last version of the pod that was found to have the same requests;
	// guarded by list.mu.
	same string

	// Used only by the waker's goroutine: when the waker last woke the pod, how often since the node gained
	// capacity, and for which node, nil once that is over.
	woken  time.Time
	tries  int
	target *nodeState
	// Whether the pod's binding is in progress, and when an attempt failed without a refusal by nodes, which
	// the waker treats like one.
	binding bool
	failed  time.Time
}

// gate is whether a waiting pod may be tried.
type gate uint8

const (
	unjudged gate = iota // shut until the waker has checked the pod, which it does at once
	shut                 // no node would take it
	open                 // it was woken, or only other plugins keep it out
)

// RefusedPod is a pod that fits no node, with the results of its cycle.
type RefusedPod struct {
	Pod    *v1.Pod
	Demand placement.Demand
	Began  time.Time // start of the cycle
	// Exempt: the pod is never gated. It is nominated, devices it could use are being released, or it has an
	// allocation with unknown outcome that it may take again. Only the scheduling queue decides when it is
	// tried.
	Exempt bool
	// Closed has the places that are kept for gangs; it may be nil.
	Closed *candidates.Closed
	// InMetric: kube-scheduler's metric unschedulable_pods counts the pod under this plugin, which is among
	// those that refused nodes.
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

// compare orders pods by who is woken first.
func (w *waitingPod) compare(o *waitingPod) int {
	return cmp.Or(
		cmp.Compare(o.demand.Priority, w.demand.Priority), w.pod.CreationTimestamp.Compare(o.pod.CreationTimestamp.Time),
		strings.Compare(w.pod.Namespace, o.pod.Namespace), strings.Compare(w.pod.Name, o.pod.Name), strings.Compare(string(w.pod.UID), string(o.pod.UID)),
	)
}

// end removes a pod from the list. The caller holds l.mu.
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

// gated implements Waker.Gated.
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

// sameWishes reports whether two versions of a pod have equal results on every node: its generation
// changes with the spec.
func sameWishes(a, b *v1.Pod) bool {
	return a == b || a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations)
}

// take returns the list in order, and the pods added and removed since the last call.
func (l *list) take() (all, added, removed []*waitingPod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added, removed = l.added, l.removed
	l.added, l.removed = nil, nil
	return slices.Clone(l.order), added, removed
}

// isOver reports whether the waiting pod has left the list.
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

// idle returns the pods with a shut gate that may be tried again, and those of them that the queue wanted
// to try, each in order of their last try. total is the number of pods on the list.
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

// set sets a waiting pod's gate, and reports whether the queue wanted to try the pod meanwhile. This is
// remembered until the pod may be tried.
func (l *list) set(w *waitingPod, g gate) (wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.exempt {
		g = open
	}
	wanted, w.gate, w.wanted = w.wanted, g, w.wanted && g != open
	return wanted
}

// wantAll marks the pods with a shut gate as wanted by the queue, so that they are among the next to be
// retried: after a change in the cluster the reason that they show may be outdated.
func (l *list) wantAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.wanted = w.wanted || w.gate == shut
	}
}

// openAll opens all gates, so that the queue may try every pod.
func (l *list) openAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.order {
		w.gate, w.wanted = open, false
	}
}

// isGated reports whether a pod is on the list and must not be tried.
func (l *list) isGated(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.pods[uid]
	return ok && w.gate != open
}

// count returns how many pods are on the list, and how many of them must not be tried.
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
