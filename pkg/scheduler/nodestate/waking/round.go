// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// round is one pass over the list.
type round struct {
	k   *Waker
	now time.Time
	all []*waitingPod
	// lastExempt is the position of the last exempt pod, or -1.
	lastExempt int
	// binding are the pods whose binding is in progress, again the nodes where other pods may take an
	// allocation with unknown outcome again.
	binding     map[types.UID]bool
	again       map[types.UID]string
	withDevices map[string][]*nodeState // request -> nodes with devices for it
	woken       []*v1.Pod
	soon        bool // the next round must follow soon
}

// follow records the outcome of a pod's attempt that is in progress, or ended without a refusal by nodes.
func (r *round) follow(w *waitingPod) {
	k := r.k
	switch {
	case r.binding[w.pod.UID]:
		if w.target != nil && !w.binding {
			k.unplan(w) // its reservation now has the devices
		}
		w.binding = true
	case k.list.isOver(w):
	case w.binding:
		// Another plugin refused it after Reserve, or it could not be bound. Devices that it released itself
		// are no reason to wake it: the scheduling queue has it.
		w.binding, w.failed = false, r.now.Add(2*CacheDelay)
		k.endTurn(w, true)
	case w.target != nil && r.now.Sub(w.woken) > maxTurn:
		k.late.Add(1)
		w.target.misses++
		w.failed = r.now
		k.release(w)
	}
}

// judge decides whether the gate of a refused pod is shut. If a node would take it that has not changed
// for a while, another plugin keeps the pod out.
func (r *round) judge(w *waitingPod) {
	to := shut
	for _, at := range r.nodesFor(w) {
		switch {
		case !at.view.admits(&w.rules):
		case at.view.grewSince(w):
			at.todo = true // serve decides who gets it
		default:
			to = open
		}
	}
	if r.k.list.set(w, to) && to == open {
		r.woken = append(r.woken, w.pod) // it missed the try that the queue wanted
	}
}

// nodesFor returns the nodes that have devices for a pod.
func (r *round) nodesFor(w *waitingPod) []*nodeState {
	if nodes, ok := r.withDevices[w.request]; ok {
		return nodes
	}
	var nodes []*nodeState
	for _, at := range r.k.nodes {
		if at.view != nil && !at.view.full() && at.view.hasDevicesFor(w.demand, r.k.clock.Now()) {
			nodes = append(nodes, at)
		}
	}
	r.withDevices[w.request] = nodes
	return nodes
}

// serve wakes pods that the node would take, in order, until it has nothing left.
func (r *round) serve(at *nodeState) {
	if r.now.Before(at.restsUntil) || len(r.woken) >= maxWoken {
		r.soon = true
		return
	}
	at.todo = false
	if at.view == nil {
		return
	}
	planned := newPlannedNode(r, at)
	full := planned.base.full()
	for i, w := range r.all {
		if full && i > r.lastExempt {
			return // a full node has nothing for the rest
		}
		if full && !w.exempt {
			continue
		}
		v := r.viewToWake(w, planned)
		if v == nil {
			continue
		}
		if later, next := r.defers(w, at); next {
			continue // let the next one have it
		} else if later {
			return
		}
		r.wake(w, at, v)
		planned.replan()
		full = planned.base.full()
	}
}

// defers reports whether the pod cannot be woken yet, and whether the next one may be woken instead.
func (r *round) defers(w *waitingPod, at *nodeState) (later, next bool) {
	again := r.now.Sub(w.woken) < wakeAgain
	if !again && at.misses < maxMisses && len(r.woken) < maxWoken {
		return false, false
	}
	r.soon, at.todo = true, true
	if at.misses >= maxMisses {
		at.misses, at.restsUntil = maxMisses/2, r.now.Add(missPause)
	}
	return true, again && w.tries >= triesBeforeNext
}

// viewToWake returns the node as seen by the pod; nil if it would not take the pod, or the pod has been,
// or is being, tried since the node changed.
func (r *round) viewToWake(w *waitingPod, p *plannedNode) *view {
	at := p.at
	if w.target != nil || r.binding[w.pod.UID] || !at.view.grewSince(w) || p.noDevicesFor[w.request] && r.again[w.pod.UID] != at.view.node.Name {
		return nil
	}
	v := p.viewFor(w)
	if !v.hasDevicesFor(w.demand, r.k.clock.Now()) {
		p.noDevicesFor[w.request] = len(at.view.nominated) == 0
		return nil
	}
	if !v.admits(&w.rules) || r.k.list.isOver(w) {
		return nil
	}
	return v
}

// wake records the devices that a pod is expected to take, and opens its gate.
func (r *round) wake(w *waitingPod, at *nodeState, v *view) {
	p := &plan{of: w}
	if v.usage != nil && v.graph == placement.Fits {
		p.alloc, _ = placement.Choose(v.usage, w.demand.Request, w.demand.WantCPUs)
	}
	if at.view.grewAt.After(w.woken) {
		w.tries = 0
	}
	w.woken, w.target = r.now, at
	w.tries++
	at.plans = append(at.plans, p)
	r.k.list.set(w, open)
	r.woken = append(r.woken, w.pod)
}
