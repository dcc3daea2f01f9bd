// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// drain is a gang for which nodes are closed to younger pods of equal or lower priority, until
// it has been placed. There is at most one a priority, and a node is closed for one gang only.
type drain struct {
	gang     *gang
	closure  *candidates.Closure
	nodes    []string
	where    string // the smallest domain with all of them
	revision uint64 // of the gang, when the nodes were chosen
	failed   int    // attempts that failed since nodes are closed for it
}

// maxFailed is how many attempts of a gang may fail before its nodes are opened: what keeps it
// from being placed is not room then.
const maxFailed = 3

// text is what the gang's members say.
func (d *drain) text() string {
	return fmt.Sprintf("drains %s since %s: %d nodes are closed to younger pods", d.where, d.closure.Since.UTC().Format(time.RFC3339), len(d.nodes))
}

// CloseBy says who closes nodes: it is given all that are closed from then on, under the lock.
// Call it before the first pod comes.
func (g *Gangs) CloseBy(closeNodes func(map[string]*candidates.Closure)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeNodes = closeNodes
}

// Starving says of a gang that has no room now when nodes are closed for it; zero is never. Only
// members below the minimum count, and none while nodes are closed for an older gang of its
// priority. own are the nodes that are closed for it already, unless it has changed since they
// were chosen. closed says which nodes may not be closed for it.
func (g *Gangs) Starving(t *Turn) (from time.Time, own []string, closed func(node string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, after := g.gangs[t.Gang.Key], g.config.DrainAfter
	if x == nil || after <= 0 || g.incomplete(x) != "" || !x.turns.needed {
		return from, nil, nil
	}
	complete, d := g.completed(x), g.drains[x.priority]
	if d != nil && d.gang != x && !younger(d, complete, x) {
		return from, nil, nil // it is tried again when these nodes are opened
	}
	if from = complete.Add(after); from.Before(x.drainAt) {
		from = x.drainAt
	}
	if d != nil && d.gang == x && d.revision == x.revision {
		own = d.nodes
	}
	return from, own, g.closedAbove(x)
}

// closedAbove says which nodes are closed for gangs of a higher priority. It needs g.mu; what it
// returns does not.
func (g *Gangs) closedAbove(x *gang) func(node string) bool {
	taken := map[string]bool{}
	for priority, d := range g.drains {
		if priority > x.priority && d.gang != x {
			for _, node := range d.nodes {
				taken[node] = true
			}
		}
	}
	return func(node string) bool { return taken[node] }
}

// Drain closes the nodes of a plan for a gang, in place of those that were closed for it or for
// a younger gang of its priority. An older one keeps its own. It returns what to tell people.
func (g *Gangs) Drain(t *Turn, nodes []string, where string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.gangs[t.Gang.Key]
	if x == nil || g.incomplete(x) != "" || !x.turns.needed {
		return ""
	}
	complete := g.completed(x)
	if d := g.drains[x.priority]; d != nil && d.gang != x && !younger(d, complete, x) {
		return ""
	}
	d := &drain{gang: x, nodes: nodes, where: where, revision: x.revision, closure: &candidates.Closure{
		Gang: x.key.String(), Priority: x.priority, Complete: complete, Since: g.clock.Now(),
		Why: "the node is kept for " + x.key.String() + ", which has waited for long",
	}}
	if was := g.drains[x.priority]; was != nil && was.gang == x {
		d.failed = was.failed
	}
	for priority, o := range g.drains {
		if priority < x.priority && slices.ContainsFunc(o.nodes, func(node string) bool { return slices.Contains(nodes, node) }) {
			delete(g.drains, priority)
		}
	}
	g.drains[x.priority] = d
	g.publish()
	return d.text()
}

// younger reports whether a drain is for a gang that became complete after x.
func younger(d *drain, complete time.Time, x *gang) bool {
	return cmp.Or(d.closure.Complete.Compare(complete), cmp.Compare(d.gang.key.String(), x.key.String())) > 0
}

// Draining is what to tell people of the nodes that are closed for a gang; "" if none are.
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

// NoDrain ends the drain of a gang that would not fit even if all others were gone, or asks for
// what cannot be planned.
func (g *Gangs) NoDrain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endDrains(func(d *drain) bool { return d.gang.key == t.Gang.Key })
}

// DrainInVain ends the drain of a gang for which its nodes have room, and which is refused there.
func (g *Gangs) DrainInVain(t *Turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.gangs[t.Gang.Key]; x != nil {
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
	g.endDrains(func(d *drain) bool {
		if d.gang == x {
			x.drainAt = g.clock.Now().Add(g.config.DrainAfter)
		}
		return d.gang == x
	})
}

// endDrained ends the drains of gangs that have been placed or are incomplete, or have another
// priority. It needs g.mu.
func (g *Gangs) endDrained() {
	g.endDrains(func(d *drain) bool {
		x := d.gang
		if g.gangs[x.key] != x {
			return true
		}
		if x.attempt != nil || x.busy > 0 {
			return false
		}
		return g.incomplete(x) != "" || !x.turns.needed || x.priority != d.closure.Priority
	})
}

func (g *Gangs) endDrains(over func(*drain) bool) {
	ended := false
	for priority, d := range g.drains {
		if over(d) {
			delete(g.drains, priority)
			ended = true
		}
	}
	if ended {
		g.publish()
	}
}

// publish closes the nodes of all drains and no others. It needs g.mu, so that what is closed
// last is what the last drain says.
func (g *Gangs) publish() {
	nodes := map[string]*candidates.Closure{}
	for _, d := range g.drains {
		for _, node := range d.nodes {
			nodes[node] = d.closure
		}
	}
	g.closeNodes(nodes)
	g.Changed() // one may be open to gangs that wait
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
	if group := g.group[x.key]; group != nil {
		later(group.CreationTimestamp.Time)
	}
	if last.IsZero() {
		return x.ready
	}
	return last
}

// KeptOut returns a function that says which nodes are closed to the members of a turn: for
// gangs that are older, and of no lower priority. So is all of a node with a place that is kept
// from them. It returns nil if none is.
func (t *Turn) KeptOut(closed *candidates.Closed) func(node string) bool {
	nodes, own := closed.All(), t.Gang.Key.String()
	if !closed.Any() {
		return nil
	}
	return func(node string) bool {
		c := nodes[node]
		return c.KeepsOut(t.Gang.Priority, t.Complete) && c.Gang != own || closed.KeptFromGang(own, t.Gang.Priority, t.Complete, node)
	}
}

// Drained chooses the nodes to close for a gang that has no room: where it fits when all others
// are gone, and of equal places that of which the most is free now. The error is that of Plan.
func (p *Planner) Drained(q *Question) (nodes []string, where string, err error) {
	empty := *q
	empty.Empty, empty.Freest = true, true
	a, err := p.Plan(&empty)
	if err != nil {
		return nil, "", err
	}
	for i := range a.Members {
		nodes = append(nodes, a.Members[i].Node)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if depth := a.Depth(); depth <= a.tree.Depth() {
		return nodes, a.tree.DomainName(depth, a.Plan.Domains[depth][0]), nil
	}
	return nodes, nodes[0], nil
}

// StillFits reports whether the gang fits on its closed nodes once all others are gone. What other
// plugins refuse there may be due to those who are there still.
func (p *Planner) StillFits(q *Question, own []string) bool {
	empty := *q
	empty.Empty = true
	return p.fitsOn(&empty, own)
}

// RefusedThere reports whether there is room on its closed nodes for a gang that has no room, now:
// it is other plugins that refuse them.
func (p *Planner) RefusedThere(q *Question, own []string) bool {
	now := *q
	return len(q.Turn.Refused) > 0 && p.fitsOn(&now, own)
}

func (p *Planner) fitsOn(q *Question, nodes []string) bool {
	q.Unrefused, q.Closed = true, func(node string) bool { return !slices.Contains(nodes, node) }
	_, err := p.Plan(q)
	return err == nil
}

// freeFor is how much of what a demand is about is free on a node.
func freeFor(d *placement.Demand, info fwk.NodeInfo) int64 {
	if !d.HasGPUs() {
		return info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU()
	}
	name := v1.ResourceName(d.Resources[0].Name)
	return info.GetAllocatable().GetScalarResources()[name] - info.GetRequested().GetScalarResources()[name]
}
