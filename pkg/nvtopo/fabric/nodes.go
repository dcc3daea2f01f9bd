// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// maxWithin bounds the steps of the search inside one innermost domain.
const maxWithin = 1 << 19

// within chooses the nodes of one innermost domain: the preferred ones, then as few as possible, then
// those that lose the least residual capacity, then the first.
func (p *problem) within(leaf, members int) (nodes []share, lost int64) {
	dom := &p.t.domains[p.t.Depth()][leaf]
	var all []int
	for n := dom.First; n < dom.End; n++ {
		if p.slots[n] > 0 {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(p.at(b).Preference, p.at(a).Preference),
			cmp.Compare(p.slots[b], p.slots[a]),
			cmp.Compare(p.at(a).Slots.lost(p.slots[a]), p.at(b).Slots.lost(p.slots[b])),
			cmp.Compare(a, b))
	})
	for members > 0 && len(all) > 0 {
		same := 0
		room := 0
		for same < len(all) && p.at(all[same]).Preference == p.at(all[0]).Preference {
			room += p.slots[all[same]]
			same++
		}
		n := min(room, members)
		nodes = append(nodes, p.fewestNodes(all[:same], n)...)
		members -= n
		all = all[same:]
	}
	slices.SortFunc(nodes, func(a, b share) int { return cmp.Compare(a.node, b.node) })
	for _, s := range nodes {
		lost += p.at(s.node).Slots.lost(s.members)
	}
	return nodes, lost
}

// dislike returns the preference cost of members in an innermost domain, by their number: they take the
// preferred nodes first.
func (p *problem) dislike(leaf, members int) []int64 {
	dom := &p.t.domains[p.t.Depth()][leaf]
	var all []int
	for n := dom.First; n < dom.End; n++ {
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(p.at(b).Preference, p.at(a).Preference) })
	out := make([]int64, 1, members+1)
	for _, n := range all {
		for k := 0; k < p.slots[n] && len(out) <= members; k++ {
			out = append(out, out[len(out)-1]-p.at(n).Preference)
		}
	}
	return out
}

// fewestNodes divides members among nodes, which are sorted by most slots, then by the least loss when
// filled. So the first nodes that hold the members are the fewest; the loss decides which others may
// replace them.
func (p *problem) fewestNodes(nodes []int, members int) []share {
	count, slack := 0, -members
	for slack < 0 {
		slack += p.slots[nodes[count]]
		count++
	}
	if slack > 0 && (len(nodes)+1)*(count+1)*(slack+1)*(slack+1) <= maxWithin {
		return p.leastLost(nodes, count, slack)
	}
	// Without slack, nodes with more slots than the last one are all filled, and of the nodes with as many
	// as the last, those that lose the least: this order. Beyond the bound this choice is taken too.
	out := make([]share, count)
	for i, n := range nodes[:count] {
		out[i] = share{n, p.slots[n]}
	}
	out[count-1].members -= slack
	return out
}

// standIns is the search for the nodes that lose least: dynamic programming over nodes left, nodes taken
// and slack used up.
type standIns struct {
	p     *problem
	nodes []int
	count int // nodes to take
	slack int // members missing from filling the first count nodes
	table []standIn
}

// standIn is the best continuation: its loss, and the members on the node. None: the node is left out; a
// negative number: there is no continuation.
type standIn struct {
	lost int64
	take int32
}

func (x *standIns) at(i, taken, used int) *standIn {
	return &x.table[(i*(x.count+1)+taken)*(x.slack+1)+used]
}

// leastLost chooses the given count of nodes with the least residual lost, so that the members fall short
// of the first count nodes' slots by slack in all.
func (p *problem) leastLost(nodes []int, count, slack int) (out []share) {
	x := &standIns{p: p, nodes: nodes, count: count, slack: slack, table: make([]standIn, (len(nodes)+1)*(count+1)*(slack+1))}
	for i := range x.table {
		x.table[i].take = -1
	}
	x.at(len(nodes), count, slack).take = 0
	for i := len(nodes) - 1; i >= 0; i-- {
		for taken := max(0, count-(len(nodes)-i)); taken <= min(i, count); taken++ {
			for used := range slack + 1 {
				x.decide(i, taken, used)
			}
		}
	}
	taken, used := 0, 0
	for i, n := range nodes {
		if k := int(x.at(i, taken, used).take); k > 0 {
			out = append(out, share{n, k})
			used += p.slots[nodes[taken]] - k
			taken++
		}
	}
	return out
}

// decide finds the best continuation from a node. A taken node replaces the taken-th largest; the slots
// it has less than that use slack up.
func (x *standIns) decide(i, taken, used int) {
	here, n := x.at(i, taken, used), x.nodes[i]
	if taken < x.count {
		for k := x.p.slots[n]; k > 0; k-- {
			u := used + x.p.slots[x.nodes[taken]] - k
			if u > x.slack {
				break
			}
			next := x.at(i+1, taken+1, u)
			if lost := next.lost + x.p.at(n).Slots.lost(k); next.take >= 0 && (here.take < 0 || lost < here.lost) {
				*here = standIn{lost, int32(k)}
			}
		}
	}
	if next := x.at(i+1, taken, used); next.take >= 0 && (here.take < 0 || next.lost < here.lost) {
		*here = standIn{next.lost, 0}
	}
}
