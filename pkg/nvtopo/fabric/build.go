// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Level is one level of a fabric.
type Level struct {
	Name string
	// Link joins two nodes whose smallest common domain is of this level.
	Link Link
}

// NodePath is the position of a node: the names of its domains, outermost first. "" and a shorter Path
// are levels that the node has no label for.
type NodePath struct {
	Node string
	Path []string
	// Bandwidth is the most that the node can send, in kB/s; 0: as much as its links carry.
	Bandwidth int64
}

// Override gives two domains of one level a link of their own, such as a slower cable.
// A domain is named by its path, or by its name if no other has it.
type Override struct {
	Level, A, B string
	Link        Link
}

// Exclusion keeps new members out of a domain.
type Exclusion struct{ Level, Domain, Reason string }

// Spec is the input of NewTree.
type Spec struct {
	Levels    []Level // outermost first
	Root      Link    // of two nodes that have no domain in common
	Nodes     []NodePath
	Overrides []Override
	Excluded  []Exclusion
}

// Fault is an error of a Spec that is left out of the tree: the node at fault is alone from the level at
// fault on.
type Fault struct {
	Node    string // empty if the fault is of no node
	Level   string // empty if the fault is of no level
	Problem string
}

// Error returns the fault with its node and level.
func (f *Fault) Error() string {
	var parts []string
	if f.Node != "" {
		parts = append(parts, fmt.Sprintf("node %q", f.Node))
	}
	if f.Level != "" {
		parts = append(parts, fmt.Sprintf("level %q", f.Level))
	}
	return strings.Join(append(parts, f.Problem), ": ")
}

// Bounds on a Spec.
const (
	MaxLevels = 8
	MaxNodes  = 1 << 16
)

// NewTree builds a tree. The faults are the parts of the Spec that it leaves out, in the order of the
// Spec; with an error there is no tree.
func NewTree(s *Spec) (*Tree, []Fault, error) {
	if err := checkLevels(s.Levels); err != nil {
		return nil, nil, err
	}
	if len(s.Nodes) > MaxNodes {
		return nil, nil, fmt.Errorf("%d nodes, at most %d are supported", len(s.Nodes), MaxNodes)
	}
	t := &Tree{levels: slices.Clone(s.Levels), root: s.Root, index: map[string]int{}, workspaces: &sync.Pool{New: newWorkspace}}
	nodes, faults := usablePaths(s)
	slices.SortFunc(nodes, comparePaths)
	for i, n := range nodes {
		t.names = append(t.names, n.Node)
		t.index[n.Node] = i
		if n.Bandwidth > 0 {
			if t.bandwidth == nil {
				t.bandwidth = make([]int64, len(nodes))
			}
			t.bandwidth[i] = n.Bandwidth
		}
	}
	t.makeDomains(nodes)
	faults = append(faults, t.exclude(s.Excluded)...)
	faults = append(faults, t.override(s.Overrides)...)
	return t, faults, nil
}

func checkLevels(levels []Level) error {
	if len(levels) > MaxLevels {
		return fmt.Errorf("%d levels, at most %d are supported", len(levels), MaxLevels)
	}
	for i, l := range levels {
		switch {
		case l.Name == "":
			return fmt.Errorf("level %d has no name", i+1)
		case l.Name == RootLevel || l.Name == NodeLevel:
			return fmt.Errorf("level %q: every fabric has a level of this name", l.Name)
		case slices.ContainsFunc(levels[:i], func(o Level) bool { return o.Name == l.Name }):
			return fmt.Errorf("level %q is there twice", l.Name)
		}
	}
	return nil
}

// usablePaths returns every node once, with a path of as many names as there are levels and no name after
// a missing one.
func usablePaths(s *Spec) (nodes []NodePath, faults []Fault) {
	seen := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.Node == "" {
			faults = append(faults, Fault{Problem: "a node has no name"})
			continue
		}
		if seen[n.Node] {
			faults = append(faults, Fault{Node: n.Node, Problem: "the node is there twice; the first counts"})
			continue
		}
		seen[n.Node] = true
		path := make([]string, len(s.Levels))
		if len(n.Path) > len(path) {
			faults = append(faults, Fault{Node: n.Node, Problem: fmt.Sprintf("%d domains for %d levels", len(n.Path), len(path))})
		}
		copy(path, n.Path)
		if gap := slices.Index(path, ""); gap >= 0 {
			for d := gap + 1; d < len(path); d++ {
				if path[d] != "" {
					faults = append(faults, Fault{
						Node: n.Node, Level: s.Levels[gap].Name,
						Problem: fmt.Sprintf("no domain, but it is in %s %q; it counts as alone", s.Levels[d].Name, path[d]),
					})
					break
				}
			}
			clear(path[gap:])
		}
		nodes = append(nodes, NodePath{n.Node, path, max(0, n.Bandwidth)})
	}
	return nodes, faults
}

// comparePaths orders paths so that nodes alone below a domain are next to its named domains.
func comparePaths(a, b NodePath) int {
	for d := range a.Path {
		switch x, y := a.Path[d], b.Path[d]; {
		case x == y:
		case x == "":
			return 1
		case y == "":
			return -1
		default:
			return CompareNames(x, y)
		}
	}
	return CompareNames(a.Node, b.Node)
}

func (t *Tree) makeDomains(nodes []NodePath) {
	t.domains = make([][]Domain, len(t.levels)+1)
	t.of = make([][]int, len(t.levels)+1)
	t.domains[0] = []Domain{{Parent: -1, End: len(nodes)}}
	t.of[0] = make([]int, len(nodes))
	for d := 1; d <= len(t.levels); d++ {
		t.of[d] = make([]int, len(nodes))
		for i, n := range nodes {
			name, parent := n.Path[d-1], t.of[d-1][i]
			all := t.domains[d]
			if last := len(all) - 1; last >= 0 && name != "" && all[last].Name == name && all[last].Parent == parent {
				all[last].End = i + 1
			} else {
				dom := Domain{Name: name, Parent: parent, First: i, End: i + 1}
				if name != "" {
					dom.Path = strings.Join(n.Path[:d], "/")
				}
				t.domains[d] = append(all, dom)
			}
			t.of[d][i] = len(t.domains[d]) - 1
		}
	}
}

// one finds the domain that a Spec names; a fault if it finds none or several.
func (t *Tree) one(level, domain string) (depth, at int, fault *Fault) {
	depth, ok := t.DepthOf(level)
	if !ok || depth == 0 || depth > len(t.levels) {
		return 0, 0, &Fault{Level: level, Problem: fmt.Sprintf("no such level, but domain %q is said to be of it", domain)}
	}
	switch found := t.find(depth, domain); len(found) {
	case 0:
		return 0, 0, &Fault{Level: level, Problem: fmt.Sprintf("no node is in domain %q", domain)}
	case 1:
		return depth, found[0], nil
	default:
		return 0, 0, &Fault{Level: level, Problem: fmt.Sprintf("%d domains have the name %q; write one's path, such as %q",
			len(found), domain, t.domains[depth][found[0]].Path)}
	}
}

func (t *Tree) exclude(list []Exclusion) (faults []Fault) {
	for _, e := range list {
		depth, at, fault := t.one(e.Level, e.Domain)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		reason := e.Reason
		if reason == "" {
			reason = "excluded"
		}
		dom := &t.domains[depth][at]
		dom.Excluded = reason
		if t.closed == nil {
			t.closed = make([]bool, t.Len())
		}
		for n := dom.First; n < dom.End; n++ {
			t.closed[n] = true
		}
	}
	return faults
}

func (t *Tree) override(list []Override) (faults []Fault) {
	t.overrides = map[pair]Link{}
	for _, o := range list {
		depth, a, fault := t.one(o.Level, o.A)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		_, b, fault := t.one(o.Level, o.B)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		if a == b {
			faults = append(faults, Fault{Level: o.Level, Problem: fmt.Sprintf("an override of domain %q with itself", o.A)})
			continue
		}
		t.overrides[pair{depth, min(a, b), max(a, b)}] = o.Link
	}
	return faults
}
