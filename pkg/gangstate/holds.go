// SPDX-License-Identifier: Apache-2.0

package gangstate

// Starving says of a gang that has no room now when places are kept for it. Only members below the
// minimum count, and none while places are kept for an older gang of its priority.
func (g *Gangs) Starving(t *Turn) Starvation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds.starving(t)
}

// Drain keeps places for a gang that has waited for long, in place of those that were kept for it or
// for a younger gang of its priority. An older one keeps its own. Nothing is kept where only pods of
// the gang's own namespace are in the way, nor on more nodes than the shares allow. It returns what
// to tell people.
func (g *Gangs) Drain(t *Turn, n *Need) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds.keep(t, n)
}

// Draining is what to tell people of the places that are kept for a gang; "" if none are.
func (g *Gangs) Draining(t *Turn) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds.text(t.Gang.Key)
}

// NoDrain ends the drain of a gang that would not fit even if all others were gone, or asks for
// what cannot be planned.
func (g *Gangs) NoDrain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds.endOf(t.Gang.Key)
}

// DrainInVain ends the drain of a gang for which its nodes have room, and which is refused there.
func (g *Gangs) DrainInVain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.queue.gangs[t.Gang.Key]; x != nil {
		g.holds.endInVain(x)
	}
}
