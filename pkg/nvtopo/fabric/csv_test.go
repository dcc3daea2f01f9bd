// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadCSV(t *testing.T) {
	cases := map[string]struct {
		text       string
		wantLevels []string
		wantNodes  []NodePath
		wantErr    string
	}{
		"two levels, spaces, a missing label": {
			text:       "\ufeffnode, spine,rack\na, s0 ,r0\nb,s0,\n",
			wantLevels: []string{"spine", "rack"},
			wantNodes:  []NodePath{{Node: "a", Path: []string{"s0", "r0"}}, {Node: "b", Path: []string{"s0", ""}}},
		},
		"no levels":               {text: "node\na\n", wantNodes: []NodePath{{Node: "a"}}},
		"nothing":                 {wantErr: "no header: want node and the names of the levels, outermost first"},
		"another first column":    {text: "ip,rack\na,r\n", wantErr: `line 1: the first column is "ip", want "node"`},
		"a line that is too long": {text: "node,rack\na,r,x\n", wantErr: "line 2: 3 cells, want 2: node,rack"},
		"a node without a name":   {text: "node,rack\na,r\n\n ,r\n", wantErr: "line 4: a node has no name"},
		"a name of two lines":     {text: "node\n\"a\r\r\nb\"\n", wantErr: `line 2: column 1: a line break or another control character in "a\r\nb"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			levels, nodes, err := ReadCSV(strings.NewReader(tc.text))
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Errorf("error %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.wantLevels, levels); d != "" {
				t.Errorf("levels (-want, +got):\n%s", d)
			}
			if d := cmp.Diff(tc.wantNodes, nodes); d != "" {
				t.Errorf("nodes (-want, +got):\n%s", d)
			}
		})
	}
}

func TestReadColumn(t *testing.T) {
	cases := map[string]struct {
		text    string
		want    []Row
		wantErr string
	}{
		"two nodes, spaces, an empty value": {
			text: "\ufeffnode, free\na, 0 1 \nb,\n", want: []Row{{2, "a", "0 1"}, {3, "b", ""}},
		},
		"nothing":               {wantErr: "no header: want node,free"},
		"another column":        {text: "node,machine\n", wantErr: "line 1: the header is node,machine, want node,free"},
		"a column more":         {text: "node,free,x\n", wantErr: "line 1: the header is node,free,x, want node,free"},
		"a node twice":          {text: "node,free\na,0\na,1\n", wantErr: `line 3: node "a" is there twice`},
		"a node without a name": {text: "node,free\n,0\n", wantErr: "line 2: a node has no name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ReadColumn(strings.NewReader(tc.text), "free")
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Errorf("error %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want, +got):\n%s", d)
			}
		})
	}
}

// FuzzReadColumn: a table of two columns is read or refused, and no node comes twice.
func FuzzReadColumn(f *testing.F) {
	f.Add("node,free\na,0 1\nb,\n")
	f.Add("\ufeffnode,free\n\"a\",\"0\n1\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := ReadColumn(strings.NewReader(text), "free")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, r := range rows {
			if r.Node == "" || seen[r.Node] {
				t.Errorf("%q: %v", text, rows)
			}
			seen[r.Node] = true
		}
	})
}

// FuzzReadCSV: a table that can be read can be written and read again, and makes a tree or an error.
func FuzzReadCSV(f *testing.F) {
	f.Add("node,spine,rack\na,s0,r0\nb,,r1\n")
	f.Add("node\n\"a\nb\"\n")
	f.Add("node\n\"a\r\r\nb\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		levels, nodes, err := ReadCSV(strings.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := csv.NewWriter(&out)
		rows := [][]string{append([]string{"node"}, levels...)}
		for _, n := range nodes {
			rows = append(rows, append([]string{n.Node}, n.Path...))
		}
		if err := w.WriteAll(rows); err != nil {
			t.Fatal(err)
		}
		levels2, nodes2, err := ReadCSV(&out)
		if err != nil || !cmp.Equal(levels, levels2) || !cmp.Equal(nodes, nodes2) {
			t.Fatalf("%q: read again as %v, %v, %v", text, levels2, nodes2, err)
		}
		s := &Spec{Nodes: nodes}
		for _, name := range levels {
			s.Levels = append(s.Levels, Level{Name: name})
		}
		tree, _, err := NewTree(s)
		if err != nil {
			return
		}
		for n := range tree.Len() {
			for d := range tree.Depth() + 1 {
				if dom := tree.Domains(d)[tree.DomainOf(d, n)]; n < dom.First || n >= dom.End {
					t.Fatalf("%q: node %d is not in its domain of depth %d", text, n, d)
				}
			}
		}
	})
}
