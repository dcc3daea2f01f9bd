// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// wakePause is how long news are gathered before the list is looked at again.
	wakePause = 20 * time.Millisecond
	// wakeBehind is how much later than we the scheduler's cache may hear of something: a
	// pod refused within that of a change may have been judged by the world before.
	wakeBehind = time.Second
	// wakeAgain is how soon one pod may be woken again within that time.
	wakeAgain = 250 * time.Millisecond
	// triesBeforeNext is how often it is before a less important one is for the same devices.
	triesBeforeNext = 2
	// wakeTurn is how long a woken pod may take to be bound or refused before the next
	// one is woken for the same devices.
	wakeTurn = 3 * time.Second
	// wakeAtOnce is how many pods one look at the list wakes at most.
	wakeAtOnce = 256
	// maxMisses is how many pods in a row may be woken for one node in vain, which other
	// plugins refuse there, before it is left alone for missPause.
	maxMisses = 8
	missPause = time.Second
	// A pod that no node would take is not tried again within retryAfter. Each is within
	// retryWithin, however many wait: a pod that it could evict may have come. The
	// scheduling queue's own flush takes as long.
	retryAfter  = 10 * time.Second
	retryWithin = 5 * time.Minute
	// Each retryEvery a share of them is tried, and up to wantedAtOnce more that the
	// scheduling queue wanted tried, perhaps for another plugin: the reason that they show
	// is then of the day. They are few, because a pod that is tried as something comes
	// free may be faster than the one that it is for.
	retryEvery   = time.Second
	wantedAtOnce = 5
)

// waker finds out, beside the scheduling cycles, whom of the waiting pods what came free
// helps. Only its one goroutine uses the fields below news.
type waker struct {
	news news

	spots   map[*cell]*spot
	stale   map[*cell]touch // nodes to look at
	retried time.Time

	// What became of pods that were woken: they left the list, bound or gone; were
	// refused again; or took too long.
	served, refused, late atomic.Uint64
}

// spot is a node as the waker knows it.
type spot struct {
	glance  *glance // without plans; nil if there is no such node
	plans   []*plan // what woken pods will take, that is not to be seen yet
	whose   []*waiter
	todo    bool // somebody may fit who has not been asked
	misses  int
	resting time.Time // until when the node is left alone
}

func newWaker() *waker {
	return &waker{news: news{bell: make(chan struct{}, 1)}, spots: map[*cell]*spot{}, stale: map[*cell]touch{}}
}

// news are the nodes of which something changed since they were last taken.
type news struct {
	mu    sync.Mutex
	cells []*cell
	bell  chan struct{}
}

// touch is what the waker is told of a node.
type touch struct {
	at time.Time
	// regained: a Lease came back. That it had run out nobody told.
	regained bool
}

// add may be called under any lock.
func (n *news) add(c *cell, t touch) {
	n.mu.Lock()
	if !c.unseen {
		c.unseen, c.touched = true, touch{}
		n.cells = append(n.cells, c)
	}
	c.touched = touch{at: t.at, regained: t.regained || c.touched.regained}
	n.mu.Unlock()
	n.ring()
}

func (n *news) ring() {
	select {
	case n.bell <- struct{}{}:
	default: // it will be looked at
	}
}

// take moves the news into stale.
func (n *news) take(stale map[*cell]touch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.cells {
		c.unseen = false
		stale[c] = touch{at: c.touched.at, regained: c.touched.regained || stale[c].regained}
	}
	clear(n.cells)
	n.cells = n.cells[:0]
}

// wakeWaiting wakes pods of the list until ctx ends.
func (s *State) wakeWaiting(ctx context.Context, h fwk.Handle) {
	var timer <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.waker.news.bell:
		case <-timer:
		}
		timer = nil
		woken, again := s.look()
		if len(woken) > 0 {
			h.Activate(klog.FromContext(ctx), byName(woken))
		}
		if again > 0 {
			timer = s.clock.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(wakePause):
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

// look goes through the list once. It returns whom to wake and after what time to look
// again without any news; 0: not before there are some.
func (s *State) look() (woken []*v1.Pod, again time.Duration) {
	k := s.waker
	k.news.take(k.stale)
	all, fresh, ended := s.waiting.take()
	now := s.clock.Now()
	last := map[types.UID]*waiter{}
	for _, w := range ended {
		last[w.pod.UID] = w
		k.conclude(w, s.waiting.has(w.pod.UID))
	}
	if len(all) == 0 {
		return nil, 0 // the nodes are looked at when somebody waits for them
	}
	s.refreshSpots()
	round := &round{s: s, now: now, all: all, lastExpected: -1, devices: map[string][]*spot{}}
	round.chosen, round.tried = s.attempts()
	for _, w := range fresh {
		if old := last[w.pod.UID]; old != nil {
			w.woken, w.tries = old.woken, old.tries
		}
		round.judge(w)
	}
	for i, w := range all {
		round.follow(w)
		if w.expected {
			round.lastExpected = i
		}
	}
	for c, at := range k.spots {
		if at.todo {
			round.serve(c, at)
		}
	}
	if now.Sub(k.retried) >= retryEvery {
		k.retried = now
		round.retry()
	}
	if round.hurried {
		return round.woken, wakeAgain
	}
	return round.woken, retryEvery
}

// conclude takes note that a pod is off the list, or on it anew.
func (k *waker) conclude(w *waiter, again bool) {
	if w.target == nil {
		return
	}
	at := k.spots[w.target]
	if again {
		k.refused.Add(1)
		at.misses++
	} else {
		k.served.Add(1)
		at.misses = 0
	}
	k.release(w)
}

// release gives back what was planned for a woken pod, to the next one.
func (k *waker) release(w *waiter) {
	k.unplan(w)
	w.target = nil
}

// unplan forgets what was planned for a woken pod.
func (k *waker) unplan(w *waiter) {
	at := k.spots[w.target]
	at.todo = true
	if i := slices.Index(at.whose, w); i >= 0 {
		at.plans, at.whose = slices.Delete(at.plans, i, i+1), slices.Delete(at.whose, i, i+1)
	}
}

// refreshSpots looks at the nodes that changed, and at first at all.
func (s *State) refreshSpots() {
	k := s.waker
	if len(k.spots) == 0 {
		for _, c := range s.cells.all() {
			if _, ok := k.stale[c]; !ok {
				k.stale[c] = touch{}
			}
		}
	}
	nobody := func(*v1.Pod) bool { return false }
	now := s.clock.Now()
	for c, touched := range k.stale {
		at := k.spots[c]
		if at == nil {
			at = &spot{}
			k.spots[c] = at
		}
		old := at.glance
		at.glance = s.glance(c, nil, nobody, "")
		switch g := at.glance; {
		case g == nil:
		case old == nil:
			g.grew, at.todo = touched.at, true
		case touched.regained || g.outgrows(old):
			g.grew, at.todo, at.misses = now, true, 0
		default:
			g.grew = old.grew
		}
	}
	clear(k.stale)
}
