// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree builds a fabric from lines "node domain domain …", outermost domain first; "-" is a
// missing label.
func tree(tb testing.TB, levels, nodes string) *Tree {
	tb.Helper()
	t, faults := treeWithFaults(tb, levels, nodes)
	if len(faults) > 0 {
		tb.Fatalf("faults: %v", faults)
	}
	return t
}

func treeWithFaults(tb testing.TB, levels, nodes string) (*Tree, []string) {
	tb.Helper()
	t, faults, err := NewTree(spec(levels, nodes))
	if err != nil {
		tb.Fatal(err)
	}
	var texts []string
	for i := range faults {
		texts = append(texts, faults[i].Error())
	}
	return t, texts
}

func spec(levels, nodes string) *Spec {
	inside, outside := SampleLinks()
	s := &Spec{Root: outside}
	names := strings.Fields(levels)
	for i, name := range names {
		link := outside
		if i == len(names)-1 {
			link = inside
		}
		s.Levels = append(s.Levels, Level{Name: name, Link: link})
	}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		for i, f := range fields {
			if f == "-" {
				fields[i] = ""
			}
		}
		s.Nodes = append(s.Nodes, NodePath{Node: fields[0], Path: fields[1:]})
	}
	return s
}

// paths draws a tree: one line a node, with the numbers of its domains.
func paths(t *Tree) (out []string) {
	for n := range t.Len() {
		line := []string{t.Name(n)}
		for d := 1; d <= t.Depth(); d++ {
			line = append(line, "/"+t.Domains(d)[t.DomainOf(d, n)].Path)
		}
		out = append(out, strings.Join(line, " "))
	}
	return out
}

// TestTreePaths: the tree is made of the paths.
func TestTreePaths(t *testing.T) {
	cases := map[string]struct {
		levels, nodes string
		want          []string
		wantFaults    []string
	}{
		"no levels": {
			nodes: "b\na", want: []string{"a", "b"},
		},
		"numbers in names count as numbers": {
			levels: "rack", nodes: "n10 r10\nn2 r10\nn1 r2",
			want: []string{"n1 /r2", "n2 /r10", "n10 /r10"},
		},
		"rack names repeat under each spine": {
			levels: "spine rack", nodes: "a s0 r0\nb s1 r0\nc s0 r0",
			want: []string{"a /s0 /s0/r0", "c /s0 /s0/r0", "b /s1 /s1/r0"},
		},
		"uneven: a node directly at a spine": {
			levels: "spine rack", nodes: "a s0\nb s0 r0",
			want: []string{"b /s0 /s0/r0", "a /s0 /"},
		},
		"a node without labels is alone": {
			levels: "rack", nodes: "a\nb -\nc r0",
			want: []string{"c /r0", "a /", "b /"},
		},
		"a label below a missing one is left out": {
			levels: "zone spine rack", nodes: "a z0 - r0\nb z0 s0 r0",
			want:       []string{"b /z0 /z0/s0 /z0/s0/r0", "a /z0 / /"},
			wantFaults: []string{`node "a": level "spine": no domain, but it is in rack "r0"; it counts as alone`},
		},
		"a node named twice": {
			levels: "rack", nodes: "a r0\na r1",
			want: []string{"a /r0"}, wantFaults: []string{`node "a": the node is there twice; the first counts`},
		},
		"more domains than levels": {
			levels: "rack", nodes: "a r0 x",
			want: []string{"a /r0"}, wantFaults: []string{`node "a": 2 domains for 1 levels`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, faults := treeWithFaults(t, tc.levels, tc.nodes)
			if d := cmp.Diff(tc.want, paths(got)); d != "" {
				t.Errorf("nodes (-want, +got):\n%s", d)
			}
			if d := cmp.Diff(tc.wantFaults, faults); d != "" {
				t.Errorf("faults (-want, +got):\n%s", d)
			}
		})
	}
}

// TestLoneNodes: nodes that are alone share no domain.
func TestLoneNodes(t *testing.T) {
	tr := tree(t, "rack", "a\nb\nc r0\nd r0")
	node := func(name string) int {
		n, ok := tr.Node(name)
		if !ok {
			t.Fatalf("no node %s", name)
		}
		return n
	}
	for pair, want := range map[string]int{"a a": 2, "a b": 0, "a c": 0, "c d": 1} {
		a, b, _ := strings.Cut(pair, " ")
		if got := tr.Common(node(a), node(b)); got != want {
			t.Errorf("%s: common depth %d, want %d", pair, got, want)
		}
	}
}

// TestEmptyLevels: invalid levels are refused.
func TestEmptyLevels(t *testing.T) {
	cases := map[string]struct {
		levels []string
		want   string
	}{
		"without a name":   {[]string{"a", ""}, "level 2 has no name"},
		"twice":            {[]string{"a", "b", "a"}, `level "a" is there twice`},
		"the root":         {[]string{"cluster"}, `level "cluster": every fabric has a level of this name`},
		"the node":         {[]string{"rack", "node"}, `level "node": every fabric has a level of this name`},
		"more than we can": {[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, "9 levels, at most 8 are supported"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &Spec{}
			for _, l := range tc.levels {
				s.Levels = append(s.Levels, Level{Name: l})
			}
			if _, _, err := NewTree(s); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// TestDomainNaming: overrides and exclusions name one domain.
func TestDomainNaming(t *testing.T) {
	const nodes = "a s0 r0\nb s0 r1\nc s1 r0\nd s1 r2"
	s := spec("spine rack", nodes)
	slow := Link{Bandwidth: 1, Latency: 2, Hops: 3}
	slower := Link{Bandwidth: 9, Latency: 9, Hops: 9}
	s.Overrides = []Override{
		{Level: "rack", A: "r1", B: "s0/r0", Link: slow},
		{Level: "spine", A: "s0", B: "s1", Link: slower},
		{Level: "rack", A: "r2", B: "s1/r0", Link: slow},
		{Level: "rack", A: "r0", B: "r1", Link: slow},
		{Level: "rack", A: "r1", B: "r9", Link: slow},
		{Level: "zone", A: "z", B: "y", Link: slow},
		{Level: "rack", A: "r1", B: "r1", Link: slow},
	}
	s.Excluded = []Exclusion{{Level: "rack", Domain: "r2", Reason: "recabled"}, {Level: "rack", Domain: "r0"}}
	tr, faults, err := NewTree(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range faults {
		got = append(got, faults[i].Error())
	}
	want := []string{
		`level "rack": 2 domains have the name "r0"; write one's path, such as "s0/r0"`,
		`level "rack": 2 domains have the name "r0"; write one's path, such as "s0/r0"`,
		`level "rack": no node is in domain "r9"`,
		`level "zone": no such level, but domain "z" is said to be of it`,
		`level "rack": an override of domain "r1" with itself`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("faults (-want, +got):\n%s", d)
	}
	inside, outside := SampleLinks()
	links := []Link{tr.Between(0, 1), tr.Between(0, 2), tr.Between(2, 3), tr.Between(1, 0), tr.Between(1, 1)}
	if d := cmp.Diff([]Link{slow, slower, slow, slow, {}}, links); d != "" {
		t.Errorf("links (-want, +got):\n%s", d)
	}
	if d := cmp.Diff([]bool{false, false, false, true}, tr.closed); d != "" {
		t.Errorf("closed (-want, +got):\n%s", d)
	}
	plain := tree(t, "spine rack", nodes+"\ne s0 r0")
	if plain.Between(0, 1) != inside || plain.Between(0, 2) != outside {
		t.Errorf("links without overrides: %v, %v", plain.Between(0, 1), plain.Between(0, 2))
	}
}

func TestCompareNames(t *testing.T) {
	want := []string{"", "10", "a", "a1", "a01", "a2", "a10", "a10b", "a10b1", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareNames)
	// "a01" and "a1" differ in a zero only: byte order.
	want = []string{"", "10", "a", "a01", "a1", "a2", "a10", "a10b", "a10b1", "b"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want, +got):\n%s", d)
	}
}

func FuzzCompareNames(f *testing.F) {
	f.Add("node-2", "node-10", "node-02")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		sign := func(x, y string) int { return min(1, max(-1, CompareNames(x, y))) }
		if sign(a, b) != -sign(b, a) || (sign(a, b) == 0) != (a == b) {
			t.Errorf("%q and %q: %d, %d", a, b, sign(a, b), sign(b, a))
		}
		if sign(a, b) <= 0 && sign(b, c) <= 0 && sign(a, c) > 0 {
			t.Errorf("%q, %q, %q are in no order", a, b, c)
		}
	})
}
