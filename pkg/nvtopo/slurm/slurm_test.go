// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

func TestHosts(t *testing.T) {
	cases := map[string]struct {
		list    string
		want    string // joined by blanks
		wantErr string
	}{
		"one name":                     {list: "login", want: "login"},
		"several":                      {list: "a,b,a1", want: "a b a1"},
		"a range and a number":         {list: "node[1-4,7]", want: "node1 node2 node3 node4 node7"},
		"leading zeros":                {list: "n[08-11]", want: "n08 n09 n10 n11"},
		"a name behind the bracket":    {list: "n[1-2]-ib", want: "n1-ib n2-ib"},
		"two brackets":                 {list: "r[0-1]n[1,3]", want: "r0n1 r0n3 r1n1 r1n3"},
		"brackets beside each other":   {list: "n[0-1][5-6]x,y", want: "n05x n06x n15x n16x y"},
		"only a bracket":               {list: "[1-2]", want: "1 2"},
		"nothing":                      {list: "", wantErr: "no names"},
		"an empty name":                {list: "a,,b", wantErr: "a name is empty"},
		"a comma at the end":           {list: "a,", wantErr: "after the last comma"},
		"a bracket that stays open":    {list: "a[1-2", wantErr: "not closed"},
		"a bracket nobody opened":      {list: "a1]", wantErr: "not opened"},
		"a bracket within brackets":    {list: "a[1-[2-3]]", wantErr: "inside of brackets"},
		"an empty bracket":             {list: "a[]", wantErr: "want a number"},
		"letters in brackets":          {list: "a[b-c]", wantErr: "want a number"},
		"a range that runs backwards":  {list: "a[4-2]", wantErr: "backwards"},
		"a range without an end":       {list: "a[4-]", wantErr: "want a number"},
		"more nodes than anybody has":  {list: "a[0-9999999]", wantErr: "more than 65536"},
		"more nodes by two brackets":   {list: "a[0-999][0-999]", wantErr: "more than 65536"},
		"more nodes than both can be":  {list: "a[1-65536],b", wantErr: "more than 65536"},
		"a number of too many figures": {list: "a[1234567890]", wantErr: "up to 9 digits"},
		"a name that is no host's":     {list: strings.Repeat("x", 254), wantErr: "253 characters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Hosts(tc.list)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%v: error %v, want %q in it", got, err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

func TestParse(t *testing.T) {
	cases := map[string]struct {
		text       string
		wantLevels int
		want       []string // path:node
		wantErr    string
	}{
		"two levels, as Slurm's page has them": {
			text:       "# a comment\nSwitchName=s0 Nodes=dev[0-1]\nSwitchName=s1 Nodes=dev[2-3] LinkSpeed=900 # two\n\nSwitchName=s2 Switches=s[0-1]\n",
			wantLevels: 2, want: []string{"s2/s0:dev0", "s2/s0:dev1", "s2/s1:dev2", "s2/s1:dev3"},
		},
		"keys in any case, lines that go on": {
			text: "switchname=a \\\n  nodes=x\r\n", wantLevels: 1, want: []string{"a:x"},
		},
		"parents before children": {
			text: "SwitchName=top Switches=mid\nSwitchName=mid Switches=leaf\nSwitchName=leaf Nodes=x", wantLevels: 3, want: []string{"top/mid/leaf:x"},
		},
		"a leaf right below the top": {
			text:       "SwitchName=top Switches=mid,l2\nSwitchName=mid Switches=l1\nSwitchName=l1 Nodes=x\nSwitchName=l2 Nodes=y",
			wantLevels: 3, want: []string{"top/mid/l1:x", "top/l2/l2:y"},
		},
		"two trees of different height": {
			text: "SwitchName=top Switches=l1\nSwitchName=l1 Nodes=x\nSwitchName=l2 Nodes=y", wantLevels: 2, want: []string{"top/l1:x", "l2/l2:y"},
		},
		"nothing":                     {text: "# nothing\n", wantErr: "no switches"},
		"no name":                     {text: "Nodes=a", wantErr: "line 1: a switch without SwitchName"},
		"neither nodes nor switches":  {text: "\nSwitchName=a LinkSpeed=1", wantErr: `line 2: switch "a": want either Switches or Nodes`},
		"both nodes and switches":     {text: "SwitchName=a Nodes=x Switches=b", wantErr: "want either Switches or Nodes"},
		"a switch twice":              {text: "SwitchName=a Nodes=x\nSwitchName=a Nodes=y", wantErr: `line 2: switch "a" is on line 1, too`},
		"a switch that is not there":  {text: "SwitchName=a Switches=b", wantErr: `line 1: switch "a": there is no switch "b"`},
		"a node behind two switches":  {text: "SwitchName=a Nodes=x\nSwitchName=b Nodes=x", wantErr: `line 2: node "x" is behind switch "b", and on line 1 behind "a": that is no tree`},
		"a node twice behind one":     {text: "SwitchName=a Nodes=x,x", wantErr: "that is no tree"},
		"a switch below two switches": {text: "SwitchName=a Nodes=x\nSwitchName=b Switches=a\nSwitchName=c Switches=a", wantErr: `line 3: switch "a" is below "c", and on line 2 below "b"`},
		"switches in a ring":          {text: "SwitchName=a Switches=b\nSwitchName=b Switches=a", wantErr: "is below itself"},
		"blocks":                      {text: "BlockName=b Nodes=x", wantErr: "line 1: BlockName: blocks are not read"},
		"an unknown key":              {text: "SwitchName=a Nodes=x Speed=1", wantErr: `unknown key "Speed"`},
		"no value":                    {text: "SwitchName", wantErr: "want KEY=VALUE"},
		"hosts that are none":         {text: "SwitchName=a Nodes=x[", wantErr: "line 1: Nodes: "},
		"a line that never ends":      {text: `SwitchName=a Nodes=x\`, wantErr: "to be continued"},
		"nine levels":                 {text: chain(9), wantErr: "at most 8 levels"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(tc.text))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q in it", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var nodes []string
			for _, n := range got.Nodes {
				nodes = append(nodes, strings.Join(n.Path, "/")+":"+n.Node)
			}
			if diff := cmp.Diff(tc.want, nodes); diff != "" || got.Levels != tc.wantLevels {
				t.Errorf("%d levels, want %d (-want,+got):\n%s", got.Levels, tc.wantLevels, diff)
			}
		})
	}
}

// chain is a tree of so many levels and one node.
func chain(levels int) string {
	var b strings.Builder
	b.WriteString("SwitchName=s0 Nodes=x\n")
	for i := 1; i < levels; i++ {
		fmt.Fprintf(&b, "SwitchName=s%d Switches=s%d\n", i, i-1)
	}
	return b.String()
}

// FuzzParse: any text is refused or is a tree without faults, of full paths and few levels.
func FuzzParse(f *testing.F) {
	f.Add("SwitchName=s0 Nodes=dev[0-1]\nSwitchName=s1 Nodes=r[0-1]n[08-09],x\nSwitchName=s2 Switches=s[0-1] LinkSpeed=9 # c\n")
	f.Add("SwitchName=top Switches=mid,l2\nSwitchName=mid Switches=l1\nSwitchName=l1 Nodes=x\\\n,y\nSwitchName=l2 Nodes=z")
	f.Add(chain(8))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		if got.Levels < 1 || got.Levels > fabric.MaxLevels || len(got.Nodes) > fabric.MaxNodes {
			t.Fatalf("%d levels, %d nodes", got.Levels, len(got.Nodes))
		}
		spec := &fabric.Spec{Nodes: got.Nodes}
		for i := range got.Levels {
			spec.Levels = append(spec.Levels, fabric.Level{Name: fmt.Sprint("level-", i)})
		}
		tree, faults, err := fabric.NewTree(spec)
		if err != nil || len(faults) > 0 || tree.Len() != len(got.Nodes) {
			t.Errorf("no tree: %v, %v", err, faults)
		}
		for _, n := range got.Nodes {
			if len(n.Path) != got.Levels {
				t.Errorf("path %q of %d levels", n.Path, got.Levels)
			}
		}
	})
}
