// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The levels that every cluster can be grouped by, besides those of its fabric.
const (
	LevelCluster = "cluster"
	LevelNode    = "node"
	LevelPod     = "pod"
)

// Group is a part of a cluster, with what it is divided into.
type Group struct {
	Level  string  `json:"level"`
	Name   string  `json:"name"` // "-" of nodes that are in no domain of the level
	Supply Supply  `json:"supply"`
	Groups []Group `json:"groups,omitempty"`
	// Node is that of a group of the level node, and Pod that of the level pod.
	Node *Node `json:"-"`
	Pod  *Pod  `json:"pod,omitempty"`
	// Closed is of a node: why nothing goes there.
	Closed string `json:"closed,omitempty"`
	// Note is of a node: what it is said to have beside its graph, and that its kubelet refuses pods.
	Note string `json:"note,omitempty"`
}

// AllLevels are the levels that the cluster can be grouped by, outermost first.
func (v *View) AllLevels() []string { return append(slices.Clone(v.Levels), LevelNode, LevelPod) }

// Group divides the cluster by levels, in this order; by all levels if there are none. It is an
// error if a level is unknown or twice there.
func (v *View) Group(levels []string) (*Group, error) {
	if len(levels) == 0 {
		levels = v.AllLevels()
	}
	for i, l := range levels {
		switch {
		case !slices.Contains(v.AllLevels(), l):
			return nil, fmt.Errorf("no level %q: want some of %s", l, strings.Join(v.AllLevels(), ", "))
		case slices.Contains(levels[:i], l):
			return nil, fmt.Errorf("level %q twice", l)
		}
	}
	root := v.group(LevelCluster, LevelCluster, v.Nodes, levels)
	return &root, nil
}

func (v *View) group(level, name string, nodes []*Node, below []string) Group {
	g := Group{Level: level, Name: name, Supply: newSupply()}
	for _, n := range nodes {
		g.Supply.add(&n.Supply)
	}
	if level == LevelNode {
		g.Node, g.Closed, g.Note = nodes[0], nodes[0].why(), nodes[0].Notes()
	}
	if len(below) == 0 {
		return g
	}
	if below[0] == LevelPod {
		g.Groups = podsOf(nodes)
		return g
	}
	var order []string
	parts := map[string][]*Node{}
	for _, n := range nodes {
		key := v.domain(n, below[0])
		if parts[key] == nil {
			order = append(order, key)
		}
		parts[key] = append(parts[key], n)
	}
	for _, key := range order {
		g.Groups = append(g.Groups, v.group(below[0], key, parts[key], below[1:]))
	}
	return g
}

// why is why nothing goes to a node.
func (n *Node) why() string { return cmp.Or(n.Closed, n.NoGraph) }

// Notes are Note and Refuses in one text.
func (n *Node) Notes() string { return joined(n.Note, n.Refuses) }

// joined are some texts as one; empty ones are left out.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// domain is where a node is in a level: domains of one name in different domains of an outer
// level are told apart by their path.
func (v *View) domain(n *Node, level string) string {
	if level == LevelNode {
		return n.Name
	}
	depth := slices.Index(v.Levels, level)
	if n.Domains[depth] == "" {
		return "-"
	}
	at, _ := v.tree.Node(n.Name)
	return v.tree.DomainName(depth+1, v.tree.DomainOf(depth+1, at))
}

// podsOf are the pods of some nodes, each a group.
func podsOf(nodes []*Node) []Group {
	var out []Group
	for _, n := range nodes {
		for i := range n.Pods {
			p := &n.Pods[i]
			s := newSupply()
			s.GPUs = len(p.GPUs) + p.Counted + p.AbsentGPUs
			s.UsedGPUs = s.GPUs
			out = append(out, Group{Level: LevelPod, Name: p.FullName(), Supply: s, Node: n, Pod: p})
		}
	}
	return out
}
