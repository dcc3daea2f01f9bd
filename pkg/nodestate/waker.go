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
	// retryAfter is how long a pod that no node would take is left alone at least, and
	// retryWithin how long it takes until all of them had another try however many they
	// are, as long as the scheduling queue's own flush: somebody of less importance may have
	// come whom they can evict.
	retryAfter  = 10 * time.Second
	retryWithin = 5 * time.Minute
	// retryEvery is how often some of them are, and so are those whom the scheduling queue
	// wanted tried, for the sake of another plugin perhaps, retriedWhileShort at most in all
	// while the list is shorter than shortList: what they show for a reason is then of
	// the day. Who is tried when something comes free may be faster than whom it is for.
	retryEvery        = time.Second
	retriedWhileShort = 5
	shortList         = 64
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

// round is one look at the list.
type round struct {
	s   *State
	now time.Time
	all []*waiter
	// lastExpected is the place of the last of them that is never shut out, -1 if none is.
	lastExpected int
	// chosen are the pods whose choice is on its way to be bound, tried the nodes where
	// others may take a choice in doubt again.
	chosen  map[types.UID]bool
	tried   map[types.UID]string
	devices map[string][]*spot // signature -> where there are devices for it
	woken   []*v1.Pod
	hurried bool // somebody is to be looked at again soon
}

// follow takes note of what has become of a pod's attempt that ended, or goes on,
// without a refusal by nodes.
func (r *round) follow(w *waiter) {
	k := r.s.waker
	switch {
	case r.chosen[w.pod.UID]:
		if w.target != nil && !w.chosen {
			k.unplan(w) // the claim says now what it takes
		}
		w.chosen = true
	case r.s.waiting.isOver(w):
	case w.chosen:
		// Another plugin refused it after Reserve, or it could not be bound. What it gave
		// back itself is no reason to wake it: the scheduling queue has it.
		w.chosen, w.gaveUp = false, r.now.Add(2*wakeBehind)
		k.conclude(w, true)
	case w.target != nil && r.now.Sub(w.woken) > wakeTurn:
		k.late.Add(1)
		k.spots[w.target].misses++
		w.gaveUp = r.now
		k.release(w)
	}
}

// since reports whether a node came to have more after the pod was refused, or its
// attempt came to nothing, or so shortly before that the scheduler may not have known.
func (g *glance) since(w *waiter) bool {
	last := w.refused
	if w.gaveUp.After(last) {
		last = w.gaveUp
	}
	return g.grew.After(last.Add(-wakeBehind))
}

// judge decides whether a pod that was refused is shut out. If a node would take it that
// has not changed for a while, what keeps it out is another plugin's business.
func (r *round) judge(w *waiter) {
	to := shut
	for _, at := range r.spotsFor(w) {
		switch {
		case !at.glance.admits(w.rules):
		case at.glance.since(w):
			at.todo = true // whose turn it is is another question
		default:
			to = open
		}
	}
	if r.s.waiting.set(w, to) && to == open {
		r.woken = append(r.woken, w.pod) // it missed what the queue wanted it tried for
	}
}

// spotsFor returns the nodes that have devices for a pod.
func (r *round) spotsFor(w *waiter) []*spot {
	if spots, ok := r.devices[w.sig]; ok {
		return spots
	}
	var spots []*spot
	for _, at := range r.s.waker.spots {
		if at.glance != nil && !at.glance.full() && r.s.offers(at.glance, w.rules.d) {
			spots = append(spots, at)
		}
	}
	r.devices[w.sig] = spots
	return spots
}

// serve wakes those whom a node would take, in order, until it has nothing left.
func (r *round) serve(c *cell, at *spot) {
	if r.now.Before(at.resting) || len(r.woken) >= wakeAtOnce {
		r.hurried = true
		return
	}
	at.todo = false
	if at.glance == nil {
		return
	}
	v := newViews(r, c, at)
	full := v.base.full()
	for i, w := range r.all {
		if full && i > r.lastExpected {
			return // a full node has nothing for the rest
		}
		if full && !w.expected {
			continue
		}
		g := r.takes(w, c, at, v)
		if g == nil {
			continue
		}
		if later, next := r.defers(w, at); next {
			continue // let the next one have it
		} else if later {
			return
		}
		r.wake(w, c, at, g)
		v.replan()
		full = v.base.full()
	}
}

// defers reports whether the pod cannot be woken yet, and whether the next one may be in
// its place.
func (r *round) defers(w *waiter, at *spot) (later, next bool) {
	again := r.now.Sub(w.woken) < wakeAgain
	if !again && at.misses < maxMisses && len(r.woken) < wakeAtOnce {
		return false, false
	}
	r.hurried, at.todo = true, true
	if at.misses >= maxMisses {
		at.misses, at.resting = maxMisses/2, r.now.Add(missPause)
	}
	return true, again && w.tries >= triesBeforeNext
}

// takes returns the node as the pod would find it, nil if it would not take the pod or
// the pod has had, or is having, its turn.
func (r *round) takes(w *waiter, c *cell, at *spot, v *views) *glance {
	if w.target != nil || r.chosen[w.pod.UID] || !at.glance.since(w) || v.without[w.sig] && r.tried[w.pod.UID] != c.name {
		return nil
	}
	g := v.of(w)
	if !r.s.offers(g, w.rules.d) {
		v.without[w.sig] = len(at.glance.nominated) == 0
		return nil
	}
	if !g.admits(w.rules) || r.s.waiting.isOver(w) {
		return nil
	}
	return g
}

// wake plans for a pod what it will take, and lets it be tried.
func (r *round) wake(w *waiter, c *cell, at *spot, g *glance) {
	p := &plan{pod: w.pod, request: w.rules.d.Request}
	if g.usage != nil && g.standing == Fits {
		p.alloc, _ = g.usage.Choose(p.request, w.rules.d.WantCPUs)
	}
	if at.glance.grew.After(w.woken) {
		w.tries = 0
	}
	w.woken, w.target = r.now, c
	w.tries++
	at.plans, at.whose = append(at.plans, p), append(at.whose, w)
	r.s.waiting.set(w, open)
	r.woken = append(r.woken, w.pod)
}

// retry lets some of those be tried who have waited longest since they were.
func (r *round) retry() {
	idle := r.s.waiting.idle(r.now)
	share := int((time.Duration(len(r.all))*retryEvery + retryWithin - 1) / retryWithin)
	if len(r.all) < shortList {
		share = retriedWhileShort
	}
	for _, w := range idle[:min(len(idle), share)] {
		r.s.waiting.set(w, open)
		r.woken = append(r.woken, w.pod)
	}
}

// views are a node with the plans for woken pods, as pods of each priority find it: they
// leave to nominated ones what is theirs.
type views struct {
	r       *round
	c       *cell
	at      *spot
	base    *glance
	by      map[int32]*glance
	without map[string]bool // signatures for which there are no devices
}

func newViews(r *round, c *cell, at *spot) *views {
	v := &views{r: r, c: c, at: at, base: at.glance, without: map[string]bool{}}
	if len(at.plans) > 0 {
		v.replan()
	}
	return v
}

// replan looks at the node again with the plans as they are now.
func (v *views) replan() {
	v.by = nil
	if g := v.r.s.glance(v.c, v.at.plans, func(*v1.Pod) bool { return false }, ""); g != nil {
		v.base = g
	}
}

// of is the node as a pod finds it.
func (v *views) of(w *waiter) *glance {
	d := w.rules.d
	yields := func(pod *v1.Pod) bool {
		return d.yieldsTo(pod) && !slices.ContainsFunc(v.at.plans, func(p *plan) bool { return p.pod.UID == pod.UID })
	}
	before, own := false, false
	for _, pi := range v.at.glance.nominated {
		before = before || yields(pi.GetPod())
		own = own || pi.GetPod().UID == d.UID
	}
	var doubts types.UID
	if v.r.tried[d.UID] == v.c.name {
		doubts, own = d.UID, true
	}
	if !before && doubts == "" {
		return v.base
	}
	if g := v.by[d.Priority]; g != nil && !own {
		return g
	}
	g := v.r.s.glance(v.c, v.at.plans, yields, doubts)
	if g == nil {
		return v.base
	}
	if !own {
		if v.by == nil {
			v.by = map[int32]*glance{}
		}
		v.by[d.Priority] = g
	}
	return g
}
