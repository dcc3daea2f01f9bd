// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

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
			k.unplan(w) // the reservation says now what it takes
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
		case !at.glance.admits(&w.rules):
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
		if at.glance != nil && !at.glance.full() && r.s.offers(at.glance, w.demand) {
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
	if !r.s.offers(g, w.demand) {
		v.without[w.sig] = len(at.glance.nominated) == 0
		return nil
	}
	if !g.admits(&w.rules) || r.s.waiting.isOver(w) {
		return nil
	}
	return g
}

// wake plans for a pod what it will take, and lets it be tried.
func (r *round) wake(w *waiter, c *cell, at *spot, g *glance) {
	p := &plan{pod: w.pod, request: w.demand.Request}
	if g.usage != nil && g.freshness == placement.Fits {
		p.alloc, _ = placement.Choose(g.usage, p.request, w.demand.WantCPUs)
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

// retry lets some of those be tried who were not for a while: as many as it takes that
// everybody is within retryWithin, and some of those whom the queue wanted tried.
func (r *round) retry() {
	all, wanted := r.s.waiting.idle(r.now)
	share := min(len(all), int((time.Duration(len(r.all))*retryEvery+retryWithin-1)/retryWithin))
	turns := all[:share:share]
	for _, w := range wanted {
		if len(turns) == share+wantedAtOnce {
			break
		}
		if !slices.Contains(all[:share], w) {
			turns = append(turns, w)
		}
	}
	for _, w := range turns {
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
	d := w.demand
	yields := func(pod *v1.Pod) bool {
		return yieldsTo(d, pod) && !slices.ContainsFunc(v.at.plans, func(p *plan) bool { return p.pod.UID == pod.UID })
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
