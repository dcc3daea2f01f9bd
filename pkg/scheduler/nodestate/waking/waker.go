// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// CacheDelay is how much later than the waker the scheduler's cache may get an event: a pod refused
	// within that time after a change may have been checked against the older state.
	CacheDelay = time.Second
	// RetryAfter is how long a pod that no node would take is not tried again.
	RetryAfter = 10 * time.Second
	// RetryWithin is the time within which each of them is tried again, regardless of their number: a pod
	// that it could evict may have been started. The scheduling queue's own flush takes as long.
	RetryWithin = 5 * time.Minute

	// gatherFor is how long changes are gathered before the list is processed again.
	gatherFor = 20 * time.Millisecond
	// wakeAgain is how soon one pod may be woken again within CacheDelay.
	wakeAgain = 250 * time.Millisecond
	// triesBeforeNext is how often a pod is woken before a less important one is woken for the same devices.
	triesBeforeNext = 2
	// maxTurn is how long a woken pod may take to be bound or refused before the next one is woken for the
	// same devices.
	maxTurn = 3 * time.Second
	// maxWoken is how many pods one round wakes at most.
	maxWoken = 256
	// maxMisses is how many pods in a row may be woken for one node without success, because other plugins
	// refuse them there, before the node is skipped for missPause.
	maxMisses = 8
	missPause = time.Second
	// Each retryEvery a share of the pods that no node would take is tried, and up to maxWanted more that
	// the scheduling queue wanted to try, perhaps for another plugin, so that the reason they show is
	// current. Their number is small, because a pod that is tried when devices become free may be faster
	// than the pod that they are meant for.
	retryEvery = time.Second
	maxWanted  = 5
)

// Activate is the scheduling queue's method: it moves pods, by namespace/name, to its active part.
type Activate func(klog.Logger, map[string]*v1.Pod)

// Waker finds out, outside of scheduling cycles, which waiting pods can use capacity that became free.
// Make one with New. All methods but Round and RetrySome, which are for one goroutine, may be called at
// any time.
type Waker struct {
	clock     clock.Clock
	cluster   Cluster
	list      *list
	changes   changes
	othersDue chan struct{} // receives when WakeOthers was called
	allOthers atomic.Bool   // all of them are to be tried at once

	// Outcomes of woken pods: they left the list, bound or gone; were refused again; or took too long.
	served, refused, late atomic.Uint64

	// The rest is used by one goroutine.
	nodes   map[*Node]*nodeState
	changed map[*Node]change // nodes to process
	retried time.Time        // when RetrySome last returned pods
}

// nodeState is the waker's state of a node.
type nodeState struct {
	source     Source
	view       *view   // without plans; nil if there is no such node
	plans      []*plan // devices that woken pods will take and do not show yet
	todo       bool    // some pod that has not been checked may fit
	misses     int
	restsUntil time.Time // until when the node is skipped
}

// New returns a Waker without pods and nodes.
func New(clk clock.Clock, cluster Cluster) *Waker {
	return &Waker{
		clock: clk, cluster: cluster, list: newList(), changes: changes{due: make(chan struct{}, 1)}, othersDue: make(chan struct{}, 1),
		nodes: map[*Node]*nodeState{}, changed: map[*Node]change{},
	}
}

// Add puts a pod on the list at the end of the cycle that refused it. It is gated until it is woken or
// changed.
func (k *Waker) Add(r *RefusedPod) {
	if !k.cluster.Synced() || len(r.Pod.Spec.ResourceClaims) > 0 {
		return // they will be woken together; other plugins know more of ResourceClaims
	}
	k.list.add(newWaitingPod(r))
	// The pod may have ended, or been bound after all, during its cycle. The store changes before its
	// handlers run, so if they ran before the pod was on the list this read shows it.
	if now := k.cluster.Stored(r.Pod); now == nil || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		k.list.remove(r.Pod.UID)
	}
	k.changes.ring()
}

// Remove takes a pod off the list that is bound, gone or about to be, so that the next one is woken.
func (k *Waker) Remove(uid types.UID) {
	if k.list.remove(uid) {
		k.changes.ring()
	}
}

// Gated reports whether the pod is on the list, unchanged since it was refused, and no node would take
// it: it must be kept out of the scheduling queue. inMetric reports whether the queue's metric counts it
// under this plugin already; from now on it does until the pod is tried.
func (k *Waker) Gated(pod *v1.Pod) (gated, inMetric bool) { return k.list.gated(pod) }

// OpenGates allows every waiting pod to be tried, when the queue next wants to.
func (k *Waker) OpenGates() { k.list.openAll() }

// Counts has the numbers for metrics.
type Counts struct {
	Waiting, Gated        int    // pods on the list, and those of them that may not be tried now
	Served, Refused, Late uint64 // outcomes of woken pods
}

// Counts returns how many pods wait, and the outcomes of woken pods.
func (k *Waker) Counts() Counts {
	c := Counts{Served: k.served.Load(), Refused: k.refused.Load(), Late: k.late.Load()}
	c.Waiting, c.Gated = k.list.count()
	return c
}

// Run wakes pods of the list until ctx ends.
func (k *Waker) Run(ctx context.Context, activate Activate) {
	var timer <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changes.due:
		case <-timer:
		}
		timer = nil
		woken, again := k.Round()
		woken = append(woken, k.RetrySome()...)
		if len(woken) > 0 {
			activate(klog.FromContext(ctx), byName(woken))
		}
		if again > 0 {
			timer = k.clock.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.clock.After(gatherFor):
		}
	}
}

func byName(pods []*v1.Pod) map[string]*v1.Pod {
	out := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		out[pod.Namespace+"/"+pod.Name] = pod
	}
	return out
}

// Round processes the list once. It returns the pods to wake, and the time after which it must be called
// again without any change; 0: not before a change.
func (k *Waker) Round() (woken []*v1.Pod, again time.Duration) {
	for _, n := range k.changes.take(k.changed) {
		delete(k.nodes, n)
	}
	all, added, removed := k.list.take()
	now := k.clock.Now()
	last := map[types.UID]*waitingPod{}
	for _, w := range removed {
		last[w.pod.UID] = w
		k.endTurn(w, k.list.has(w.pod.UID))
	}
	if len(all) == 0 {
		return nil, 0 // nodes are read once some pod waits for them
	}
	k.lookAtChanged()
	round := &round{k: k, now: now, all: all, lastExempt: -1, withDevices: map[string][]*nodeState{}}
	round.binding, round.again = k.cluster.Attempts()
	for _, w := range added {
		if old := last[w.pod.UID]; old != nil {
			w.woken, w.tries = old.woken, old.tries
		}
		round.judge(w)
	}
	for i, w := range all {
		round.follow(w)
		if w.exempt {
			round.lastExempt = i
		}
	}
	for _, at := range k.nodes {
		if at.todo {
			round.serve(at)
		}
	}
	if round.soon {
		return round.woken, wakeAgain
	}
	return round.woken, retryEvery
}

// RetrySome returns, once in retryEvery, waiting pods to be tried although no node would take them: as
// many as are needed so that each is tried within RetryWithin, and some of those that the queue wanted to
// try.
func (k *Waker) RetrySome() []*v1.Pod {
	now := k.clock.Now()
	if now.Sub(k.retried) < retryEvery {
		return nil
	}
	all, wanted, total := k.list.idle(now)
	if total == 0 {
		return nil
	}
	k.retried = now
	share := min(len(all), int((time.Duration(total)*retryEvery+RetryWithin-1)/RetryWithin))
	turns := all[:share:share]
	for _, w := range wanted {
		if len(turns) == share+maxWanted {
			break
		}
		if !slices.Contains(all[:share], w) {
			turns = append(turns, w)
		}
	}
	pods := make([]*v1.Pod, len(turns))
	for i, w := range turns {
		k.list.set(w, open)
		pods[i] = w.pod
	}
	return pods
}

// endTurn records that a woken pod has left the list, or was refused and is on it again.
func (k *Waker) endTurn(w *waitingPod, refused bool) {
	if w.target == nil {
		return
	}
	at := w.target
	if refused {
		k.refused.Add(1)
		at.misses++
	} else {
		k.served.Add(1)
		at.misses = 0
	}
	k.release(w)
}

// release frees the devices planned for a woken pod, for the next one.
func (k *Waker) release(w *waitingPod) {
	k.unplan(w)
	w.target = nil
}

// unplan drops the plan of a woken pod.
func (k *Waker) unplan(w *waitingPod) {
	at := w.target
	at.todo = true
	at.plans = slices.DeleteFunc(at.plans, func(p *plan) bool { return p.of == w })
}

// lookAtChanged updates the views of the nodes that changed, and of all nodes the first time.
func (k *Waker) lookAtChanged() {
	if len(k.nodes) == 0 {
		for n := range k.cluster.Nodes() {
			if _, ok := k.changed[n]; !ok {
				k.changed[n] = change{}
			}
		}
	}
	nobody := func(*v1.Pod) bool { return false }
	now := k.clock.Now()
	for n, what := range k.changed {
		at := k.nodes[n]
		if at == nil {
			at = &nodeState{source: n.source}
			k.nodes[n] = at
		}
		old := at.view
		at.view = newView(at.source, nil, nobody, "", now)
		switch v := at.view; {
		case v == nil:
		case old == nil:
			v.grewAt, at.todo = what.at, true
		case what.leaseBack || v.mayTakeMore(old):
			v.grewAt, at.todo, at.misses = now, true, 0
		default:
			v.grewAt = old.grewAt
		}
	}
	clear(k.changed)
}
