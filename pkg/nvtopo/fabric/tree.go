// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"strings"
	"sync"
)

// Link is the network between two nodes.
type Link struct {
	Bandwidth int64 // kB/s, one direction
	Latency   int64 // ns
	Hops      int
	// Assumed reports that bandwidth or latency is a rule of thumb. Estimates are printed with it, but no
	// plan is chosen by it.
	Assumed bool
}

// Names of the two levels that every tree has: the whole cluster, and a single node.
const (
	RootLevel = "cluster"
	NodeLevel = "node"
)

// Domain is a part of the fabric: all nodes behind one switch, in one rack, and so on.
type Domain struct {
	Name     string // the label's value; empty for a node that has none and so is alone
	Path     string // names from the outermost level on, joined by "/"; empty if Name is
	Parent   int    // the domain one level further out
	First    int    // the nodes of the domain are First … End-1
	End      int
	Excluded string // reason why new members are excluded; empty if they are not
}

// Nodes returns the number of nodes of the domain.
func (d *Domain) Nodes() int { return d.End - d.First }

// Tree is a fabric: nodes in nested domains. Depth 0 is the whole cluster, depth d the d-th level from
// outside. It is immutable and safe for concurrent plans.
//
// Nodes are numbered in the order of their paths, with numbers in names in natural order, so that every
// domain is a range of nodes and nodes of neighbouring numbers are near each other.
type Tree struct {
	levels    []Level
	root      Link
	names     []string       // by node
	index     map[string]int // name -> node
	domains   [][]Domain     // by depth
	of        [][]int        // by depth, then node: the domain
	overrides map[pair]Link
	closed    []bool  // by node: in an excluded domain; nil if none is
	bandwidth []int64 // by node: the most it can send, in kB/s, 0 for no bound; nil if none has one

	workspaces *sync.Pool // memory of plans
}

// pair is two domains of one depth, the smaller number first.
type pair struct{ depth, a, b int }

// Len returns the number of nodes.
func (t *Tree) Len() int { return len(t.names) }

// Name returns the name of a node.
func (t *Tree) Name(node int) string { return t.names[node] }

// Node returns the number of the node of that name.
func (t *Tree) Node(name string) (node int, ok bool) {
	node, ok = t.index[name]
	return node, ok
}

// Depth returns the depth of the innermost level; 0 for a tree without levels.
func (t *Tree) Depth() int { return len(t.levels) }

// Levels returns the levels, outermost first.
func (t *Tree) Levels() []Level { return slices.Clone(t.levels) }

// Root returns the link of two nodes that have no domain in common.
func (t *Tree) Root() Link { return t.root }

// LevelName returns the name of the level at a depth: the root's at 0, "node" below the innermost.
func (t *Tree) LevelName(depth int) string {
	switch {
	case depth <= 0:
		return RootLevel
	case depth > len(t.levels):
		return NodeLevel
	}
	return t.levels[depth-1].Name
}

// DepthOf returns the depth of the level of that name.
func (t *Tree) DepthOf(level string) (depth int, ok bool) {
	switch level {
	case RootLevel:
		return 0, true
	case NodeLevel:
		return len(t.levels) + 1, true
	}
	i := slices.IndexFunc(t.levels, func(l Level) bool { return l.Name == level })
	return i + 1, i >= 0
}

// Domains returns the domains of a depth in the order of their nodes; do not change them.
func (t *Tree) Domains(depth int) []Domain { return t.domains[depth] }

// DomainOf returns the number of a node's domain of a depth.
func (t *Tree) DomainOf(depth, node int) int { return t.of[depth][node] }

// DomainName returns a name for a domain: its own name, its path if others of its level have the same
// name, or the node's name if the node is alone.
func (t *Tree) DomainName(depth, domain int) string {
	d := &t.domains[depth][domain]
	switch {
	case depth == 0:
		return RootLevel
	case d.Name == "":
		return t.names[d.First]
	case slices.ContainsFunc(t.domains[depth], func(o Domain) bool { return o.Name == d.Name && o.Path != d.Path }):
		return d.Path
	}
	return d.Name
}

// DomainNames returns the domains of a plan by the names of their levels, without the root's.
func (t *Tree) DomainNames(p *Plan) map[string][]string {
	out := make(map[string][]string, t.Depth())
	for d := 1; d <= t.Depth(); d++ {
		for _, i := range p.Domains[d] {
			out[t.LevelName(d)] = append(out[t.LevelName(d)], t.DomainName(d, i))
		}
	}
	return out
}

// Common returns the depth of the smallest domain that has both nodes: one more than Depth for a node and
// itself.
func (t *Tree) Common(a, b int) int {
	if a == b {
		return len(t.levels) + 1
	}
	d := len(t.levels)
	for d > 0 && t.of[d][a] != t.of[d][b] {
		d--
	}
	return d
}

// Between returns the link of two nodes: that of the level of their smallest common domain, unless an
// override applies to domains that they are in, of which the innermost is used. It is no faster than
// either node can send. A node has no link to itself.
func (t *Tree) Between(a, b int) Link {
	if a == b {
		return Link{}
	}
	l := t.levelLink(t.Common(a, b))
	if p, ok := t.overridden(a, b); ok {
		l = t.overrides[p]
	}
	for _, n := range [...]int{a, b} {
		if t.bandwidth != nil && t.bandwidth[n] > 0 {
			l.Bandwidth = min(l.Bandwidth, t.bandwidth[n])
		}
	}
	return l
}

// levelLink returns the link of nodes whose smallest common domain is of a depth.
func (t *Tree) levelLink(depth int) Link {
	if depth == 0 {
		return t.root
	}
	return t.levels[depth-1].Link
}

// overridden returns the innermost domains of two nodes between which an override applies.
func (t *Tree) overridden(a, b int) (p pair, ok bool) {
	if len(t.overrides) == 0 {
		return pair{}, false
	}
	for d, common := len(t.levels), t.Common(a, b); d > common; d-- {
		x, y := t.of[d][a], t.of[d][b]
		p = pair{d, min(x, y), max(x, y)}
		if _, ok = t.overrides[p]; ok {
			return p, true
		}
	}
	return pair{}, false
}

// find returns the domains of a depth with that path, or with that name if none has the path.
func (t *Tree) find(depth int, name string) []int {
	var byPath, byName []int
	for i := range t.domains[depth] {
		switch d := &t.domains[depth][i]; {
		case d.Name == "":
		case d.Path == name:
			byPath = append(byPath, i)
		case d.Name == name:
			byName = append(byName, i)
		}
	}
	if len(byPath) > 0 {
		return byPath
	}
	return byName
}

// CompareNames orders names naturally: digits in a row are one number, so node-2 comes before node-10.
// Names that differ only in leading zeros are in byte order.
func CompareNames(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if digit(x[0]) && digit(y[0]) {
			var m, n string
			m, x = cutNumber(x)
			n, y = cutNumber(y)
			m, n = strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
			if len(m) != len(n) {
				return len(m) - len(n)
			}
			if c := strings.Compare(m, n); c != 0 {
				return c
			}
			continue
		}
		if x[0] != y[0] {
			return int(x[0]) - int(y[0])
		}
		x, y = x[1:], y[1:]
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// cutNumber splits a name after the digits that it begins with.
func cutNumber(s string) (number, rest string) {
	i := 0
	for i < len(s) && digit(s[i]) {
		i++
	}
	return s[:i], s[i:]
}
