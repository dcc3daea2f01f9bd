// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// drain is a gang for which places are kept from younger pods of equal or lower priority, until it has
// been placed or the time is over. There is at most one a priority, and a node has places of one only.
type drain struct {
	gang     *gang
	priority int32     // of the gang, when places were kept
	complete time.Time // when the gang was
	since    time.Time
	until    time.Time                     // zero: without end
	where    string                        // the smallest domain with all of the gang's nodes
	planned  []string                      // the gang's nodes
	places   map[string][]*candidates.Kept // by node: those of planned but where only pods of the own namespace are in the way
	devices  map[string]v1.ResourceName    // of places: what nodes are counted by
	lacked   []v1.ResourceName             // what lacked beside devices since
	minimum  int                           // of the gang
	revision uint64                        // of the gang, when the nodes were chosen
	failed   int                           // attempts that failed since
	lacks    time.Time                     // since when the gang is not complete; zero while it is
	shown    holding                       // what the gang held when places were published last
}

// maxFailed is how many attempts of a gang may fail before nothing is kept for it: what keeps it
// from being placed is not room then.
const maxFailed = 3

// text is what the gang's members say.
func (d *drain) text() string {
	kept := map[v1.ResourceName]bool{}
	for _, places := range d.places {
		for _, k := range places {
			kept[k.Resource] = true
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		names = append(names, string(name))
	}
	text := fmt.Sprintf("drains %s since %s: places on %d nodes (%s) are kept from younger pods", d.where, timeText(d.since), len(d.places), strings.Join(names, ", "))
	if !d.until.IsZero() {
		text += " until " + timeText(d.until)
	}
	return text
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Starvation says when places are kept for a gang that has no room now.
type Starvation struct {
	From time.Time // zero: never
	Own  []string  // the nodes that were chosen for it, unless it has changed since
	// Closed are the nodes of which nothing may be kept for it.
	Closed func(node string) bool
	Why    string // why nothing is kept though the gang has waited for long; may be empty
}

// Starving says of a gang that has no room now when places are kept for it. Only members below the
// minimum count, and none while places are kept for an older gang of its priority.
func (g *Gangs) Starving(t *Turn) (s Starvation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, now := g.queue.gangs[t.Gang.Key], g.clock.Now()
	if x == nil || g.config.DrainAfter <= 0 || g.queue.incomplete(x) != "" || !x.turns.needed {
		return s
	}
	complete, d := g.completed(x), g.drains[x.priority]
	if d != nil && d.gang != x && !younger(d, complete, x) {
		return s // it is tried again when what is kept for the other is open
	}
	if s.From = complete.Add(g.config.DrainAfter); s.From.Before(x.drainAt) {
		s.From = x.drainAt
	}
	if g.barred(x.key.Namespace, now, &s); s.From.IsZero() {
		return s
	}
	if d != nil && d.gang == x && d.revision == x.revision {
		s.Own = d.planned
	}
	s.Closed = g.takenFrom(x, now)
	return s
}

// barred has a gang's time begin later where nothing is kept for gangs of its namespace: zero if that is never.
// It needs g.mu.
func (g *Gangs) barred(namespace string, now time.Time, s *Starvation) {
	switch open := g.holders.openUntil(namespace, now); {
	case !g.config.drainsFor(namespace):
		if !now.Before(s.From) {
			s.Why = "no places are kept for gangs of its namespace"
		}
		s.From = time.Time{}
	case !open.IsZero() && !now.Before(s.From):
		s.From, s.Why = open, "places are kept for gangs of its namespace from "+timeText(open)+" on, since they were kept in vain before"
	}
}

// takenFrom says of which nodes nothing may be kept for a gang: places are kept there for one of a
// higher priority, or were kept in vain and are open for as long. It needs g.mu; what it returns does
// not.
func (g *Gangs) takenFrom(x *gang, now time.Time) func(node string) bool {
	taken := map[string]bool{}
	for node := range g.heldNodes {
		if !g.heldNodes.openUntil(node, now).IsZero() {
			taken[node] = true
		}
	}
	for priority, d := range g.drains {
		if priority > x.priority && d.gang != x {
			for node := range d.places {
				taken[node] = true
			}
		}
	}
	return func(node string) bool { return taken[node] }
}

// Drain keeps places for a gang that has waited for long, in place of those that were kept for it or
// for a younger gang of its priority. An older one keeps its own. Nothing is kept where only pods of
// the gang's own namespace are in the way, nor on more nodes than the shares allow. It returns what
// to tell people.
func (g *Gangs) Drain(t *Turn, n *Need) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, now := g.queue.gangs[t.Gang.Key], g.clock.Now()
	if !g.mayDrain(x, now) {
		return ""
	}
	complete, was := g.completed(x), g.drains[x.priority]
	if was != nil && was.gang != x && !younger(was, complete, x) {
		return ""
	}
	if was != nil && was.gang != x {
		was = nil
	}
	nodes := g.mayKeep(x, n, was, now)
	why, useless := n.useless(was != nil)
	if !useless {
		why = g.overShare(x, n, nodes)
	}
	if useless || why != "" || len(nodes) == 0 {
		g.endDrains(now, func(d *drain) outcome { return inVain.when(d.gang == x) })
		return why
	}
	d := &drain{
		gang: x, priority: x.priority, complete: complete, since: now, where: n.Where, planned: n.Planned, revision: x.revision, minimum: x.read.Minimum,
	}
	if was != nil {
		d.since, d.failed, d.lacked, d.minimum = was.since, was.failed, was.lacked, max(was.minimum, d.minimum)
	}
	d.lacked = n.lacked(d.lacked)
	g.replace(d, n, nodes, was)
	return d.text()
}

// mayDrain reports whether places may be kept for a gang now. It needs g.mu.
func (g *Gangs) mayDrain(x *gang, now time.Time) bool {
	if x == nil || g.queue.incomplete(x) != "" || !x.turns.needed {
		return false
	}
	return g.config.drainsFor(x.key.Namespace) && g.holders.openUntil(x.key.Namespace, now).IsZero()
}

// mayKeep returns the nodes of which places may be kept for a gang: not those on which only pods of its own
// namespace are in the way, unless a place is kept there for it already, and not those that are taken from
// it. It needs g.mu.
func (g *Gangs) mayKeep(x *gang, n *Need, was *drain, now time.Time) map[string]bool {
	nodes, taken := map[string]bool{}, g.takenFrom(x, now)
	for _, p := range n.Places {
		if begun := was != nil && was.places[p.Node] != nil; (begun || p.Way != Own) && !taken(p.Node) {
			nodes[p.Node] = true
		}
	}
	return nodes
}

// replace has a drain, which keeps places on some nodes of its need, take the place of all that it
// displaces. It needs g.mu.
func (g *Gangs) replace(d *drain, n *Need, nodes map[string]bool, was *drain) {
	now := g.clock.Now()
	for priority, o := range g.drains {
		if !displaces(d, o, nodes) {
			continue
		}
		delete(g.drains, priority)
		for node := range o.places {
			if !nodes[node] {
				g.endNode(node, now)
			}
		}
		if namespace := o.gang.key.Namespace; namespace != d.gang.key.Namespace && !g.holds(namespace) {
			delete(g.holders, namespace) // it was not its doing
		}
	}
	g.drains[d.priority] = d
	g.holders.begin(d.gang.key.Namespace, now)
	first := g.holders.since(d.gang.key.Namespace, now)
	for node := range nodes {
		g.heldNodes.begin(node, now)
		if since := g.heldNodes.since(node, now); since.Before(first) {
			first = since
		}
	}
	if g.config.DrainFor > 0 {
		d.until = first.Add(g.config.DrainFor)
	}
	d.keep(n, nodes)
	if was != nil && d.sameAs(was) {
		d.places, d.shown = was.places, was.shown // the same: no waiting pod has to be tried again
		return
	}
	g.publish()
}

// displaces reports whether a drain ends another one: that of the gang itself or of a younger one of
// its priority, and one of a lower priority that needs one of its nodes.
func displaces(d, o *drain, nodes map[string]bool) bool {
	if o.gang == d.gang || o.priority == d.priority {
		return true
	}
	for node := range o.places {
		if o.priority < d.priority && nodes[node] {
			return true
		}
	}
	return false
}

// holds reports whether something is kept for a gang of the namespace. It needs g.mu.
func (g *Gangs) holds(namespace string) bool {
	for _, d := range g.drains {
		if d.gang.key.Namespace == namespace {
			return true
		}
	}
	return false
}

// keep makes the places on some nodes: of the devices that members ask for, and of what else lacked on
// any of the gang's nodes.
func (d *drain) keep(n *Need, nodes map[string]bool) {
	why := "which has waited for long"
	if !d.until.IsZero() {
		why += ", until " + timeText(d.until)
	}
	d.places, d.devices = map[string][]*candidates.Kept{}, map[string]v1.ResourceName{}
	for _, p := range n.Places {
		if !nodes[p.Node] {
			continue
		}
		d.devices[p.Node] = p.Device
		for _, name := range slices.Sorted(maps.Keys(p.Amounts)) {
			if p.Amounts[name] > 0 && (p.Devices[name] || slices.Contains(d.lacked, name)) {
				d.places[p.Node] = append(d.places[p.Node], candidates.NewKept(d.gang.key, candidates.Kept{
					Priority: d.priority, Made: d.complete, Resource: name, Count: p.Amounts[name],
				}, why))
			}
		}
	}
}

// sameAs reports whether two drains keep the same, and say the same of it.
func (d *drain) sameAs(o *drain) bool {
	return d.until.Equal(o.until) && maps.EqualFunc(d.places, o.places, func(a, b []*candidates.Kept) bool {
		return slices.EqualFunc(a, b, func(a, b *candidates.Kept) bool { return *a == *b })
	})
}

// younger reports whether a drain is for a gang that became complete after x.
func younger(d *drain, complete time.Time, x *gang) bool {
	return cmp.Or(d.complete.Compare(complete), cmp.Compare(d.gang.key.String(), x.key.String())) > 0
}

// Draining is what to tell people of the places that are kept for a gang; "" if none are.
func (g *Gangs) Draining(t *Turn) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.drains {
		if d.gang.key == t.Gang.Key {
			return d.text()
		}
	}
	return ""
}

// publishKept keeps the places of all drains, but for what their gangs hold there, and nothing else. It
// needs g.mu.
func (g *Gangs) publishKept() {
	nodes := map[string][]*candidates.Kept{}
	for _, d := range g.drains {
		d.shown = d.gang.holding()
		for node, places := range d.beside() {
			nodes[node] = append(nodes[node], places...)
		}
	}
	g.scheduler.Keep(nodes)
}

// publish keeps the places of all drains and no others. It needs g.mu, so that what is kept last is
// what the last drain says.
func (g *Gangs) publish() {
	g.publishKept()
	g.queue.Changed() // some may be open to gangs that wait
}

// completed is when the last of the members that are to be placed came, by what the API server
// says: a scheduler that begins to lead goes on where the last one was. A scheduling gate that
// was taken away after that counts as far as this process saw it. It needs g.mu and a complete
// gang.
func (g *Gangs) completed(x *gang) time.Time {
	last := x.ungated
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	for _, pod := range x.turns.pods {
		later(pod.CreationTimestamp.Time)
	}
	if group := x.group; group != nil {
		later(group.CreationTimestamp.Time)
	}
	if last.IsZero() {
		last = x.ready
	}
	// A replacement of one of its members does not make a gang younger for which places are kept.
	if d := g.drains[x.priority]; d != nil && d.gang == x && x.read.Minimum <= d.minimum && d.complete.Before(last) {
		return d.complete
	}
	return last
}
