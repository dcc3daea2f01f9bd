// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// A gang is planned as a whole: the reservations of all its pods are made in one step, before most of
// them have had their cycles. Each pod finds its own then. A pod that gets no devices has a place
// instead, which names its node and holds nothing.
//
// The planner of a gang must end the plan: neither time nor the end of a node does. A pod's part in it
// also ends when the pod is bound, by any scheduler, or gone.

// AddAll records the plan of a gang, completely or not at all. A reservation without an Allocation is a
// place. Nothing is added if one of the pods ended a short time ago, or has a reservation of an attempt
// in progress: then refused is its position, else -1. Call Attempted before, to tell these cases apart.
func (t *Table) AddAll(rs []*Reservation) (c Change, refused int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for i, r := range rs {
		if t.gone.lately(r.UID, now) || t.attempted(r.UID) {
			return c, i
		}
	}
	for _, r := range rs {
		t.countPlanned(true)
		if r.Allocation == nil {
			t.places[r.UID] = r
			r.since = now
			continue
		}
		r.phase, r.since = Planned, now
		t.insert(r)
		if last := len(c.Nodes) - 1; last < 0 || c.Nodes[last] != r.Node {
			c.Nodes = append(c.Nodes, r.Node)
		}
	}
	for _, n := range c.Nodes {
		n.publish()
	}
	return c, -1
}

// Attempted reports whether an attempt to bind the pod is in progress or planned.
func (t *Table) Attempted(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempted(uid)
}

// attempted is Attempted. The caller holds Table.mu.
func (t *records) attempted(uid types.UID) bool {
	return t.places[uid] != nil || slices.ContainsFunc(t.byPod[uid], (*Reservation).present)
}

// Planned returns the node on which the pod has a place in a plan, or a reservation that no cycle has
// begun to use. Without any plan it takes no lock.
func (t *Table) Planned(uid types.UID) (node string, ok bool) {
	if t.planned.Load() == 0 {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.places[uid]; r != nil && !r.Awaits {
		return r.Node.name, true
	}
	for _, r := range t.byPod[uid] {
		if r.phase == Planned && !r.Awaits {
			return r.Node.name, true
		}
	}
	return "", false
}

// Begin is Present, and moves a planned reservation on to reserved: from here on its pod's own cycle ends
// it. placed is true if the pod has a place there instead.
func (t *Table) Begin(uid types.UID, node string) (r *Reservation, placed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places[uid]; p != nil && p.Node.name == node && !p.Awaits {
		return t.presentOn(uid, node), true
	}
	if r = t.presentOn(uid, node); r != nil && r.Awaits {
		return nil, false
	}
	if r != nil && r.phase == Planned {
		t.setPhase(r, Reserved)
	}
	return r, false
}

// Keep makes the reservations of pods outlive attempts that certainly wrote nothing, until EndPlanned.
func (t *Table) Keep(uids ...types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, uid := range uids {
		for _, r := range t.byPod[uid] {
			r.kept = r.present()
		}
	}
}

// EndPlanned takes back the planned reservations and places of pods. A reservation that a cycle has begun
// to use ends with its attempt, and is no longer kept.
func (t *Table) EndPlanned(uids ...types.UID) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, uid := range uids {
		t.leave(uid)
		for _, r := range slices.Clone(t.byPod[uid]) {
			r.kept = false
			if r.phase == Planned {
				t.drop(r, &c)
				c.Freed = true
			}
		}
	}
	return c
}

// leave takes back the pod's place, if it has one. The caller holds Table.mu.
func (t *records) leave(uid types.UID) {
	if t.places[uid] != nil {
		delete(t.places, uid)
		t.countPlanned(false)
	}
}

func (t *records) countPlanned(more bool) {
	if more {
		t.planned.Add(1)
	} else {
		t.planned.Add(-1)
	}
}
