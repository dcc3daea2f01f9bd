// SPDX-License-Identifier: Apache-2.0

package gangstate

import "time"

// Starvation has the time from which places are kept for a gang that has no room now.
type Starvation struct {
	From time.Time // zero: never
	Own  []string  // the nodes that were chosen for it, unless it has changed since
	// Closed reports whether no places may be kept for it on a node.
	Closed func(node string) bool
	Why    string // why no places are kept although the gang has waited for long; may be empty
}

// starving implements Holds.Starving.
func (h *nodeHolds) starving(t *Turn) (s Starvation) {
	x, now := h.queue.gangs[t.Gang.Key], h.clock.Now()
	if x == nil || h.config.DrainAfter <= 0 || h.queue.incomplete(x) != "" || !x.turns.needed {
		return s
	}
	complete, d := h.completed(x), h.drains[x.priority]
	if d != nil && d.gang != x && !younger(d, complete, x) {
		return s // it is tried again when the other gang's places are open
	}
	if s.From = complete.Add(h.config.DrainAfter); s.From.Before(x.drainAt) {
		s.From = x.drainAt
	}
	if h.barred(x.key.Namespace, now, &s); s.From.IsZero() {
		return s
	}
	if d != nil && d.gang == x && d.chosen.revision == x.revision {
		s.Own = d.chosen.nodes
	}
	s.Closed = h.takenFrom(x, now)
	return s
}

// barred postpones the start, or sets it to zero for never, if no places are kept for gangs of the
// namespace now.
func (h *nodeHolds) barred(namespace string, now time.Time, s *Starvation) {
	switch open := h.holders.openUntil(namespace, now); {
	case !h.config.drainsFor(namespace):
		if !now.Before(s.From) {
			s.Why = "no places are kept for gangs of its namespace"
		}
		s.From = time.Time{}
	case !open.IsZero() && !now.Before(s.From):
		s.From, s.Why = open, "places are kept for gangs of its namespace from "+timeText(open)+" on, since they were kept in vain before"
	}
}

// takenFrom returns a function that reports whether no places may be kept for a gang on a node, because
// they are kept there for one of a higher priority, or were kept in vain and the node stays open for as
// long. The function needs no lock.
func (h *nodeHolds) takenFrom(x *gang, now time.Time) func(node string) bool {
	taken := map[string]bool{}
	for node := range h.nodes {
		if !h.nodes.openUntil(node, now).IsZero() {
			taken[node] = true
		}
	}
	for priority, d := range h.drains {
		if priority > x.priority && d.gang != x {
			for node := range d.places {
				taken[node] = true
			}
		}
	}
	return func(node string) bool { return taken[node] }
}

// keep implements Holds.Drain.
func (h *nodeHolds) keep(t *Turn, n *Need) string {
	x, now := h.queue.gangs[t.Gang.Key], h.clock.Now()
	if !h.mayDrain(x, now) {
		return ""
	}
	complete, was := h.completed(x), h.drains[x.priority]
	if was != nil && was.gang != x && !younger(was, complete, x) {
		return ""
	}
	if was != nil && was.gang != x {
		was = nil
	}
	nodes := h.mayKeep(x, n, was, now)
	why, useless := n.useless(was != nil)
	if !useless {
		why = h.overShare(x, n, nodes)
	}
	if useless || why != "" || len(nodes) == 0 {
		h.endDrains(now, func(d *drain) outcome { return inVain.when(d.gang == x) })
		return why
	}
	d := &drain{
		gang: x, priority: x.priority, complete: complete, since: now, chosen: chosen{n.Where, n.Planned, x.revision}, minimum: x.read.Minimum,
	}
	if was != nil {
		d.since, d.failed, d.lacked, d.minimum = was.since, was.failed, was.lacked, max(was.minimum, d.minimum)
	}
	d.lacked = n.lacked(d.lacked)
	h.replace(d, n, nodes, was)
	return d.text()
}

// mayDrain reports whether places may be kept for a gang now.
func (h *nodeHolds) mayDrain(x *gang, now time.Time) bool {
	if x == nil || h.queue.incomplete(x) != "" || !x.turns.needed {
		return false
	}
	return h.config.drainsFor(x.key.Namespace) && h.holders.openUntil(x.key.Namespace, now).IsZero()
}

// mayKeep returns the nodes on which places may be kept for a gang: not those where only pods of its own
// namespace are in the way, unless places are kept there for it already, and not those of takenFrom.
func (h *nodeHolds) mayKeep(x *gang, n *Need, was *drain, now time.Time) map[string]bool {
	nodes, taken := map[string]bool{}, h.takenFrom(x, now)
	for _, p := range n.Places {
		if begun := was != nil && was.places[p.Node] != nil; (begun || p.Way != Own) && !taken(p.Node) {
			nodes[p.Node] = true
		}
	}
	return nodes
}

// replace puts a drain, which keeps places on some nodes of its need, in the place of all drains that it
// displaces.
func (h *nodeHolds) replace(d *drain, n *Need, nodes map[string]bool, was *drain) {
	now := h.clock.Now()
	for priority, o := range h.drains {
		if !displaces(d, o, nodes) {
			continue
		}
		delete(h.drains, priority)
		for node := range o.places {
			if !nodes[node] {
				h.endNode(node, now)
			}
		}
		if namespace := o.gang.key.Namespace; namespace != d.gang.key.Namespace && !h.holds(namespace) {
			delete(h.holders, namespace) // the namespace did not cause the end
		}
	}
	h.drains[d.priority] = d
	h.holders.begin(d.gang.key.Namespace, now)
	first := h.holders.since(d.gang.key.Namespace, now)
	for node := range nodes {
		h.nodes.begin(node, now)
		if since := h.nodes.since(node, now); since.Before(first) {
			first = since
		}
	}
	if h.config.DrainFor > 0 {
		d.until = first.Add(h.config.DrainFor)
	}
	d.keep(n, nodes)
	if was != nil && d.sameAs(was) {
		d.places, d.shown = was.places, was.shown // the same: no waiting pod has to be tried again
		return
	}
	h.publish()
}
