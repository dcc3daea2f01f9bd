// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// world is a gang in a fabric as the brute force sees it. It knows paths and numbers only, and
// calls nothing of the planner: every way to place the members is tried and judged by the text
// of the objective.
type world struct {
	levels int
	nodes  []worldNode
	pods   int

	required        int // depth; 0 none
	segment, size   int // depth and members; size 0 for none
	segmentRequired bool
	spread, most    int // depth to spread over, -1 for none; most members in a domain, 0 for any

	near  []int // nodes to be near to
	order []int // by member: the node of a bound member, or -1; nil: bound members come first
}

type worldNode struct {
	name  string
	path  []string // "" is a missing label
	count [5]int   // members that fit, by the worst band accepted
	lost  []int64  // by members - 1
	like  int64
	hard  int64 // the part of like that is about hardware
	bound int   // members that are there and stay
	model int   // number of the GPUs' model
}

// key names a node's domain of a depth; nodes without a label have one of their own.
func (n *worldNode) key(depth int) string {
	if slices.Contains(n.path[:depth], "") {
		return "node " + n.name
	}
	return strings.Join(n.path[:depth], "/") + "/"
}

// judged is the values of the objective for one way to place the members; smaller is better.
type judged struct {
	ok      bool
	level   int   // depth of the smallest domain with all members and the near nodes, negated
	domains []int // by depth from 1 on
	// The same of the members alone.
	ownLevel   int
	ownDomains []int
	band       int
	cuts       int
	dislike    int64
	leaves     int
	parents    int
	// The rest is compared for members in one innermost domain only.
	nodes int
	lost  int64

	profile []int // of spread members: by domain, most first
	left    int   // slots of the domains that had no members before
}

// judge follows the objective for x[i] new members on node i.
func (w *world) judge(x []int) judged {
	j := judged{ok: true, level: -(w.levels + 1)}
	var used []int // nodes with members, bound ones included
	for i := range w.nodes {
		if x[i]+w.nodes[i].bound > 0 {
			used = append(used, i)
		}
		if x[i] > 0 {
			j.nodes++
			j.lost += w.nodes[i].lost[x[i]-1]
			j.dislike -= w.nodes[i].like * int64(x[i])
			for w.nodes[i].count[j.band] < x[i] {
				j.band++
			}
		}
	}
	all := append(slices.Clone(used), w.near...)
	j.level, j.ownLevel = -w.common(all), -w.common(used)
	for d := 1; d <= w.levels; d++ {
		j.domains = append(j.domains, len(w.group(all, d)))
		j.ownDomains = append(j.ownDomains, len(w.group(used, d)))
	}
	w.judgeHard(&j, used)
	w.judgeSegments(&j, x)
	w.judgeFit(&j, used)
	if w.spread >= 0 {
		w.judgeSpread(&j, x)
	}
	return j
}

// common is the depth of the smallest domain that has the nodes.
func (w *world) common(nodes []int) int {
	depth := w.levels + 1
	for _, a := range nodes {
		for _, b := range nodes {
			if a == b {
				continue
			}
			d := w.levels
			for w.nodes[a].key(d) != w.nodes[b].key(d) {
				d--
			}
			depth = min(depth, d)
		}
	}
	return depth
}

func (w *world) group(nodes []int, depth int) map[string][]int {
	out := map[string][]int{}
	for _, n := range nodes {
		k := w.nodes[n].key(depth)
		out[k] = append(out[k], n)
	}
	return out
}

func (w *world) all() (out []int) {
	for i := range w.nodes {
		out = append(out, i)
	}
	return out
}

func (w *world) judgeHard(j *judged, used []int) {
	if w.required == 0 {
		return
	}
	if w.required > w.levels {
		j.ok = j.ok && len(used) == 1
		return
	}
	for k := range w.group(used, w.required) {
		j.ok = j.ok && strings.HasSuffix(k, "/") && len(w.group(used, w.required)) == 1
	}
}

// judgeSegments tries all assignments of new members to segments.
func (w *world) judgeSegments(j *judged, x []int) {
	if w.size == 0 {
		return
	}
	seats := map[string]int{} // by domain
	for i, n := range x {
		seats[w.nodes[i].key(w.segment)] += n
	}
	order := w.order
	if order == nil {
		order = slices.Repeat([]int{-1}, w.pods)
	}
	type piece struct {
		missing int
		homes   map[string]bool
	}
	var pieces []piece
	number := -1 // of the last piece
	for rank, n := range order {
		if rank/w.size != number {
			number = rank / w.size
			pieces = append(pieces, piece{homes: map[string]bool{}})
		}
		p := &pieces[len(pieces)-1]
		if n < 0 {
			p.missing++
		} else {
			p.homes[w.nodes[n].key(w.segment)] = true
		}
	}
	best, all := 0, false
	var try func(i, whole, cut int)
	try = func(i, whole, cut int) {
		if i == len(pieces) {
			best, all = max(best, whole), all || cut == 0
			return
		}
		p := pieces[i]
		if p.missing == 0 {
			if len(p.homes) == 1 {
				whole++
			}
			try(i+1, whole, cut)
			return
		}
		for at := range seats {
			if seats[at] >= p.missing && len(p.homes) < 2 && (len(p.homes) == 0 || p.homes[at]) {
				seats[at] -= p.missing
				try(i+1, whole+1, cut)
				seats[at] += p.missing
			}
		}
		try(i+1, whole, cut+1)
	}
	try(0, 0, 0)
	j.cuts = len(pieces) - best
	if w.segmentRequired && !all {
		j.ok = false
	}
}

// slots of a domain in the plan's band; of the segments' level and outside it whole segments
// only, if these are required.
func (w *world) slots(nodes []int, depth, band int) int {
	if w.segmentRequired && w.size > 0 && depth < w.segment {
		sum := 0
		for _, inside := range w.group(nodes, depth+1) {
			sum += w.slots(inside, depth+1, band)
		}
		return sum
	}
	sum := 0
	for _, n := range nodes {
		sum += w.nodes[n].count[band]
	}
	if w.segmentRequired && w.size > 0 && depth == w.segment && depth > 0 { // all segments are in one cluster
		sum -= sum % w.size
	}
	return sum
}

func (w *world) judgeFit(j *judged, used []int) {
	fresh := func(depth int) (sum int) {
		everybody := w.group(w.all(), depth)
		for k, nodes := range w.group(used, depth) {
			old := slices.ContainsFunc(nodes, func(n int) bool { return w.nodes[n].bound > 0 }) ||
				slices.ContainsFunc(w.near, func(n int) bool { return w.nodes[n].key(depth) == k })
			if !old {
				sum += w.slots(everybody[k], depth, j.band)
			}
		}
		return sum
	}
	j.leaves = fresh(w.levels)
	if w.levels > 0 {
		j.parents = fresh(w.levels - 1)
	}
}

func (w *world) judgeSpread(j *judged, x []int) {
	for _, nodes := range w.group(w.all(), w.spread) {
		has, gets := 0, 0
		for _, n := range nodes {
			has += x[n] + w.nodes[n].bound
			gets += x[n]
		}
		if has > 0 {
			j.profile = append(j.profile, has)
		}
		if gets > 0 {
			if has == gets {
				j.left += w.slots(nodes, w.spread, j.band)
			}
			// Bound members may be more than the bound allows; new ones may not.
			if w.most > 0 && has > w.most {
				j.ok = false
			}
		}
	}
	slices.Sort(j.profile)
	slices.Reverse(j.profile)
}

func sumOf(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// compare is the order of the objective.
func (w *world) compare(a, b judged) int {
	if w.spread >= 0 {
		near := func(j judged) int { return max(j.level, -w.required) } // nearer than the required domain has no effect
		return cmp.Or(cmp.Compare(near(a), near(b)), -cmp.Compare(len(a.profile), len(b.profile)), slices.Compare(a.profile, b.profile),
			cmp.Compare(a.band, b.band), cmp.Compare(a.left, b.left))
	}
	c := cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(sumOf(a.domains), sumOf(b.domains)), slices.Compare(a.domains, b.domains), cmp.Compare(a.band, b.band),
		cmp.Compare(a.cuts, b.cuts), cmp.Compare(a.dislike, b.dislike),
		cmp.Compare(a.leaves, b.leaves), cmp.Compare(a.parents, b.parents))
	if c == 0 && -a.level >= w.levels {
		c = cmp.Or(cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.lost, b.lost))
	}
	return c
}

// on is the world in which only nodes of some models have room.
func (w *world) on(models ...int) *world {
	out := *w
	out.nodes = slices.Clone(w.nodes)
	for i := range out.nodes {
		if n := &out.nodes[i]; !slices.Contains(models, n.model) {
			n.count, n.lost = [5]int{}, nil
		}
	}
	return &out
}

// offer is the best plan on one model, and how long its all-reduce takes.
type offer struct {
	judged judged
	placed []int
	ms     float64
	hard   int64
}

// bestOffer returns the index of the offer that the objective takes, by its text; -1 if there is none.
func (w *world) bestOffer(offers []*offer) int {
	best := -1
	nearest := func(a, b *offer) int {
		if w.spread >= 0 {
			return 0
		}
		return cmp.Or(cmp.Compare(a.judged.level, b.judged.level), cmp.Compare(sumOf(a.judged.domains), sumOf(b.judged.domains)), slices.Compare(a.judged.domains, b.judged.domains))
	}
	most := int64(0)
	for _, o := range offers {
		if o != nil {
			most = max(most, o.hard)
		}
	}
	for i, o := range offers {
		if o == nil || o.hard < most {
			continue
		}
		excluded := false
		for _, p := range offers {
			if p == nil || p.hard < most {
				continue
			}
			near := nearest(p, o)
			excluded = excluded || near < 0 || near == 0 && w.spread < 0 && o.ms > 1.1*p.ms
		}
		if excluded {
			continue
		}
		if best >= 0 {
			b := offers[best]
			c := w.compare(o.judged, b.judged)
			if w.spread < 0 {
				c = cmp.Or(c, cmp.Compare(o.judged.nodes, b.judged.nodes), cmp.Compare(o.judged.lost, b.judged.lost))
			}
			if cmp.Or(c, -slices.Compare(o.placed, b.placed)) >= 0 {
				continue
			}
		}
		best = i
	}
	return best
}

// best tries every way; false if none is allowed.
func (w *world) best() (best judged, found bool) {
	x := make([]int, len(w.nodes))
	var try func(node, left int)
	try = func(node, left int) {
		if node == len(x) {
			if left > 0 {
				return
			}
			if j := w.judge(x); j.ok && (!found || w.compare(j, best) < 0) {
				best, found = j, true
			}
			return
		}
		for n := range min(left, w.nodes[node].count[4]) + 1 {
			x[node] = n
			try(node+1, left-n)
		}
		x[node] = 0
	}
	try(0, w.pods)
	return best, found
}

// String draws the world for a failing test.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods, required %d, segments of %d at %d (required: %v), spread %d, at most %d, near %v, order %v\n",
		w.pods, w.required, w.size, w.segment, w.segmentRequired, w.spread, w.most, w.near, w.order)
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s %q slots %v, bound %d, liked %d, lost %v, model %d\n", n.name, n.path, n.count, n.bound, n.like, n.lost, n.model)
	}
	return b.String()
}
