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
			wantNodes:  []NodePath{{"a", []string{"s0", "r0"}}, {"b", []string{"s0", ""}}},
		},
		"no levels":               {text: "node\na\n", wantNodes: []NodePath{{Node: "a"}}},
		"nothing":                 {wantErr: "no header: want node and the names of the levels, outermost first"},
		"another first column":    {text: "ip,rack\na,r\n", wantErr: `line 1: the first column is "ip", want "node"`},
		"a line that is too long": {text: "node,rack\na,r,x\n", wantErr: "record on line 2: wrong number of fields"},
		"a node without a name":   {text: "node,rack\na,r\n\n ,r\n", wantErr: "line 4: a node has no name"},
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

// FuzzReadCSV: what can be read can be written and read again, and makes a tree or an error.
func FuzzReadCSV(f *testing.F) {
	f.Add("node,spine,rack\na,s0,r0\nb,,r1\n")
	f.Add("node\n\"a\nb\"\n")
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
