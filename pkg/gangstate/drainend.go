// SPDX-License-Identifier: Apache-2.0

package gangstate

import "time"

// memberBack is how long a gang for which places are kept may lack a member that is replaced: what
// controllers commonly need to make and start another pod.
const memberBack = time.Minute

// NoDrain ends the drain of a gang that would not fit even if all others were gone, or asks for
// what cannot be planned.
func (g *Gangs) NoDrain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endDrains(g.clock.Now(), func(d *drain) outcome { return inVain.when(d.gang.key == t.Gang.Key) })
}

// DrainInVain ends the drain of a gang for which its nodes have room, and which is refused there.
func (g *Gangs) DrainInVain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.queue.gangs[t.Gang.Key]; x != nil {
		g.endInVain(x)
	}
}

// attemptFailed takes note that a gang had room and was not placed. It needs g.mu.
func (g *Gangs) attemptFailed(x *gang) {
	for _, d := range g.drains {
		if d.gang != x {
			continue
		}
		if d.failed++; d.failed >= maxFailed {
			g.endInVain(x)
		}
		return
	}
}

// endInVain ends the drain of a gang that is not placed though it has room, and begins none for
// as long as it waited for the first one. It needs g.mu.
func (g *Gangs) endInVain(x *gang) {
	now := g.clock.Now()
	g.endDrains(now, func(d *drain) outcome {
		if d.gang == x {
			x.drainAt = now.Add(g.config.DrainAfter)
		}
		return inVain.when(d.gang == x)
	})
}

// endDrained ends the drains of gangs that have been placed, have another priority, or are incomplete for
// longer than the replacement of a member may take, and those whose time is over. It needs g.mu.
func (g *Gangs) endDrained() {
	now := g.clock.Now()
	g.endDrains(now, func(d *drain) outcome {
		x := d.gang
		if g.queue.gangs[x.key] != x || !d.until.IsZero() && !now.Before(d.until) {
			return inVain
		}
		if x.attempt != nil || x.busy > 0 {
			return goesOn
		}
		if g.queue.incomplete(x) != "" {
			return inVain.when(!d.awaitsMember(now))
		}
		if !d.lacks.IsZero() {
			d.lacks, d.revision = time.Time{}, x.revision // its nodes stay the same
		}
		switch {
		case !x.turns.needed && x.bound()+len(x.read.Members.Ended) >= d.minimum:
			return placed
		case !x.turns.needed || x.priority != d.priority:
			return inVain
		}
		return goesOn
	})
	g.heldNodes.forget(now)
	g.holders.forget(now)
}

// awaitsMember reports whether a gang that is not complete may still get a replacement for a member that
// is gone: others of it wait, and it lacks one for less than memberBack.
func (d *drain) awaitsMember(now time.Time) bool {
	if d.lacks.IsZero() {
		d.lacks = now
	}
	waits := false
	for _, pod := range d.gang.pods {
		waits = waits || pod.Spec.NodeName == ""
	}
	return waits && now.Sub(d.lacks) < memberBack
}

// outcome is whether a drain ends, and why.
type outcome uint8

const (
	goesOn outcome = iota
	placed         // the gang has its minimum
	inVain
)

// when is the outcome if that is so; else the drain goes on.
func (o outcome) when(is bool) outcome {
	if is {
		return o
	}
	return goesOn
}

// endDrains ends drains. Where nothing was kept in vain, something may be kept again at once. It needs
// g.mu.
func (g *Gangs) endDrains(now time.Time, how func(*drain) outcome) {
	ended := false
	for priority, d := range g.drains {
		is := how(d)
		if is == goesOn {
			continue
		}
		ended = true
		delete(g.drains, priority)
		for node := range d.places {
			if is == placed && d.gang.on(node) {
				delete(g.heldNodes, node)
			} else {
				g.endNode(node, now)
			}
		}
		g.endHolder(d, is, now)
	}
	if ended {
		g.publish()
	}
}

// endNode has nothing kept on a node for as long as something was; at once again where places may be kept
// without end. It needs g.mu.
func (g *Gangs) endNode(node string, now time.Time) {
	if g.config.DrainFor <= 0 {
		delete(g.heldNodes, node)
		return
	}
	g.heldNodes.end(node, now)
}

// endHolder takes note that a drain of a namespace has ended. It needs g.mu.
func (g *Gangs) endHolder(ended *drain, is outcome, now time.Time) {
	namespace := ended.gang.key.Namespace
	switch others := g.holds(namespace); {
	case is == inVain && g.config.DrainFor > 0:
		if !others {
			g.holders.end(namespace, now)
		}
		return // else it goes on, as long as the first one
	case !others:
		delete(g.holders, namespace)
		return
	}
	since := now
	for _, d := range g.drains {
		if d.gang.key.Namespace == namespace && d.since.Before(since) {
			since = d.since
		}
	}
	g.holders[namespace] = span{since: since}
}
