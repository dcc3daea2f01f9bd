// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

func TestStatus(t *testing.T) {
	var many strings.Builder
	for i := range 12 {
		fmt.Fprintf(&many, "n%d example.com/spine=s0\n", 11-i)
	}
	cases := map[string]struct {
		topology       string
		nodes          string
		wantDomains    []v1alpha1.LevelDomains
		wantConditions []string
	}{
		"a sound fabric": {
			topology: twoLevels, nodes: "a example.com/spine=s0 rack=r0\nb example.com/spine=s0 rack=r0\nc example.com/spine=s0 rack=r1\n-d",
			wantDomains: []v1alpha1.LevelDomains{{Level: "spine", Domains: 1, Nodes: 3, Largest: 3}, {Level: "rack", Domains: 2, Nodes: 3, Largest: 2}},
			wantConditions: []string{
				"Ready True Usable: all of spec counts", "NotATree False Tree: the labels of all nodes make a tree",
				"LabelsMissing False Labelled: all nodes with GPUs have all labels",
			},
		},
		"many nodes without a rack": {
			topology: twoLevels, nodes: many.String() + "a\nb rack=r0",
			wantDomains: []v1alpha1.LevelDomains{{Level: "spine", Domains: 1, Nodes: 12, Largest: 12}, {Level: "rack"}},
			wantConditions: []string{
				"Ready True Usable: all of spec counts",
				`NotATree True NotATree: node "b": level "spine": no domain, but it is in rack "r0"; it counts as alone`,
				"LabelsMissing True LabelsMissing: rack: 12 nodes have no label rack: n0, n1, n2, n3, n4 and 7 more; spine: 1 node has no label example.com/spine: a",
			},
		},
		"what is excluded is not there": {
			topology: twoLevels + "excluded: [{level: rack, domain: r9}]", nodes: "a example.com/spine=s0 rack=r0",
			wantDomains: []v1alpha1.LevelDomains{{Level: "spine", Domains: 1, Nodes: 1, Largest: 1}, {Level: "rack", Domains: 1, Nodes: 1, Largest: 1}},
			wantConditions: []string{
				`Ready False UnknownDomain: level "rack": no node is in domain "r9"`, "NotATree False Tree: the labels of all nodes make a tree",
				"LabelsMissing False Labelled: all nodes with GPUs have all labels",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ct := topologyOf(t, tc.topology)
			tree, problems := Tree(ct, nodesOf(tc.nodes))
			s := Status(ct, tree, problems)
			var got []string
			for _, c := range s.Conditions {
				got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				if c.ObservedGeneration != ct.Generation {
					t.Errorf("%s is about generation %d, want %d", c.Type, c.ObservedGeneration, ct.Generation)
				}
			}
			if diff := cmp.Diff(tc.wantConditions, got); diff != "" {
				t.Errorf("conditions (-want,+got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantDomains, s.Domains); diff != "" {
				t.Errorf("domains (-want,+got):\n%s", diff)
			}
			if int(s.Nodes) != tree.Len() || s.ObservedGeneration != ct.Generation {
				t.Errorf("nodes %d, generation %d", s.Nodes, s.ObservedGeneration)
			}
		})
	}
}

// TestMessageTruncation: messages are cut between characters.
func TestMessageTruncation(t *testing.T) {
	got := cut(strings.Repeat("µ", maxMessage))
	if len(got) > maxMessage || !strings.HasSuffix(got, "µ…") {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-5:])
	}
}
