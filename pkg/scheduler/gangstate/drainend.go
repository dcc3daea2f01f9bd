// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// attemptFailed records that a gang had room and was not placed.
func (h *nodeHolds) attemptFailed(x *gang) {
	for _, d := range h.drains {
		if d.gang != x {
			continue
		}
		if d.failed++; d.failed >= maxFailed {
			h.endInVain(x)
		}
		return
	}
}

// endOf ends the drain of a gang that it would not get placed.
func (h *nodeHolds) endOf(key gangrequest.Key) {
	h.endDrains(h.clock.Now(), func(d *drain) outcome { return inVain.when(d.gang.key == key) })
}

// endInVain ends the drain of a gang that is not placed although it has room, and allows none for as long
// as it waited for the first one.
func (h *nodeHolds) endInVain(x *gang) {
	now := h.clock.Now()
	h.endDrains(now, func(d *drain) outcome {
		if d.gang == x {
			x.drainAt = now.Add(h.config.DrainAfter)
		}
		return inVain.when(d.gang == x)
	})
}

// endDrained ends the drains of gangs that have been placed, have another priority, or are incomplete for
// longer than the replacement of a member may take, and those whose time is over.
func (h *nodeHolds) endDrained() {
	now := h.clock.Now()
	h.endDrains(now, func(d *drain) outcome {
		x := d.gang
		if h.queue.gangs[x.key] != x || !d.until.IsZero() && !now.Before(d.until) {
			return inVain
		}
		if x.attempt != nil || x.busy > 0 {
			return goesOn
		}
		if h.queue.incomplete(x) != "" {
			return inVain.when(!d.awaitsMember(now))
		}
		if !d.lacks.IsZero() {
			d.lacks, d.chosen.revision = time.Time{}, x.revision // its nodes stay the same
		}
		switch {
		case !x.turns.needed && x.bound()+len(x.read.Members.Ended) >= d.minimum:
			return placed
		case !x.turns.needed || x.priority != d.priority:
			return inVain
		}
		return goesOn
	})
	h.nodes.forget(now)
	h.holders.forget(now)
}

// outcome is whether a drain ends, and why.
type outcome uint8

const (
	goesOn outcome = iota
	placed         // the gang has its minimum
	inVain
)

// when returns the outcome if is is true; else the drain goes on.
func (o outcome) when(is bool) outcome {
	if is {
		return o
	}
	return goesOn
}

// endDrains ends drains. Places that were not kept in vain may be kept again at once.
func (h *nodeHolds) endDrains(now time.Time, how func(*drain) outcome) {
	ended := false
	for priority, d := range h.drains {
		is := how(d)
		if is == goesOn {
			continue
		}
		ended = true
		delete(h.drains, priority)
		for node := range d.places {
			if is == placed && d.gang.on(node) {
				delete(h.nodes, node)
			} else {
				h.endNode(node, now)
			}
		}
		h.endHolder(d, is, now)
	}
	if ended {
		h.publish()
	}
}

// endNode keeps a node open for as long as places were kept there; not at all if places may be kept
// without end.
func (h *nodeHolds) endNode(node string, now time.Time) {
	if h.config.DrainFor <= 0 {
		delete(h.nodes, node)
		return
	}
	h.nodes.end(node, now)
}

// endHolder records that a drain of a namespace has ended.
func (h *nodeHolds) endHolder(ended *drain, is outcome, now time.Time) {
	namespace := ended.gang.key.Namespace
	switch others := h.holds(namespace); {
	case is == inVain && h.config.DrainFor > 0:
		if !others {
			h.holders.end(namespace, now)
		}
		return // else it goes on, as long as the first one
	case !others:
		delete(h.holders, namespace)
		return
	}
	since := now
	for _, d := range h.drains {
		if d.gang.key.Namespace == namespace && d.since.Before(since) {
			since = d.since
		}
	}
	h.holders[namespace] = span{since: since}
}
