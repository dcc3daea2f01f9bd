// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

func TestExplanationTextIgnoredKeys(t *testing.T) {
	const said = "Annotation nvtopo.dev/min-lnk is not known; nearest is nvtopo.dev/min-link; the pod is scheduled without it"
	e := &explain.Explanation{Kind: "Pod", Namespace: "team", Name: "p", State: explain.Bound, IgnoredKeys: said}
	if got := string(explanationText(e)); !strings.Contains(got, "\nIgnored: "+said+"\n") {
		t.Errorf("got\n%s", got)
	}
	e.IgnoredKeys = ""
	if got := string(explanationText(e)); strings.Contains(got, "Ignored") {
		t.Errorf("without any got\n%s", got)
	}
}

// TestNoPartText: the line about nodes that take no part has a few reasons, however many there are.
func TestNoPartText(t *testing.T) {
	of := func(nodes ...int) (out []explain.Refusal) {
		for i, n := range nodes {
			out = append(out, explain.Refusal{Cause: []explain.Cause{"FewGPUs", "NoGraph", "Cordoned", "StaleGraph", "Tainted", "NotReady"}[i], Nodes: n})
		}
		return out
	}
	for want, all := range map[string][]explain.Refusal{
		"1 node takes no part: 1 for FewGPUs":                                                                        of(1),
		"9 nodes take no part: 6 for FewGPUs, 3 for NoGraph":                                                         of(6, 3),
		"15 nodes take no part: 5 for FewGPUs, 4 for NoGraph, 3 for Cordoned, 1 for StaleGraph, 2 for other reasons": of(5, 4, 3, 1, 1, 1),
	} {
		if got := noPart(all); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestChosenOfFew: if fewer nodes were compared than exist, the text about the record describes the
// others.
func TestChosenOfFew(t *testing.T) {
	const said = "  not compared were nodes that come after these in the scheduler's order for the pod, and nodes that could not take it\n"
	for name, tc := range map[string]struct {
		d        allocation.Decision
		compared int // now
		others   int
		want     bool
	}{
		"two of twelve":                    {d: allocation.Decision{Scored: 2}, compared: 9, others: 3, want: true},
		"two, and one that was refused":    {d: allocation.Decision{Scored: 2, Refused: map[string]int{"StaleGraph": 1}}, compared: 2, others: 1},
		"two of two":                       {d: allocation.Decision{Scored: 2}, compared: 2},
		"by the plan of its gang":          {d: allocation.Decision{Gang: true}, compared: 9},
		"it is not known what there is":    {d: allocation.Decision{Scored: 2}},
		"nodes have been taken away since": {d: allocation.Decision{Scored: 2}, compared: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &explain.Choice{Node: "n", Set: &explain.Set{Ring: []int{0}}, Decision: &tc.d, Compared: tc.compared}
			if tc.others > 0 {
				c.NotCompared = []explain.Refusal{{Cause: "FewGPUs", Nodes: tc.others}}
			}
			got := string(explanationText(&explain.Explanation{Kind: "Pod", Name: "p", State: explain.Bound, Choice: c}))
			if strings.Contains(got, said) != tc.want {
				t.Errorf("it is said: %t, want %t:\n%s", !tc.want, tc.want, got)
			}
		})
	}
}

// TestGangMembers: the number of a gang's members is printed beside the number that start together, if
// that is known.
func TestGangMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		gang explain.Gang
		want string
	}{
		"a gang with a size":    {gang: explain.Gang{Name: "gang team/g", Minimum: 3, Have: 2, Placed: 1, Required: "rack"}, want: "\ngang team/g: 2 of 3 members there, 1 placed; all in one rack\n"},
		"one without a size":    {gang: explain.Gang{Name: "gang team/g", Have: 2}, want: "\ngang team/g: members there: 2, and nobody says how many start together, 0 placed\n"},
		"one without its group": {gang: explain.Gang{Name: "PodGroup team/g", Have: 1}, want: "\nPodGroup team/g: members there: 1, and nobody says how many start together, 0 placed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if gangText(&b, &tc.gang); b.String() != tc.want {
				t.Errorf("got %q, want %q", b.String(), tc.want)
			}
		})
	}
}

// TestRingOfCandidates: one GPU has no ring, and so no ring bandwidth.
func TestRingOfCandidates(t *testing.T) {
	terms := &allocation.Terms{1000, 500, 21}
	for name, tc := range map[string]struct {
		candidate allocation.Candidate
		want      string
	}{
		"several GPUs":      {allocation.Candidate{Node: "n", Score: 5561, Ring: 450e6, Terms: terms}, "n     55.61  450        1.000      0.500    0.021\n"},
		"one GPU":           {allocation.Candidate{Node: "n", Score: 5561, Terms: terms}, "n     55.61  -          1.000      0.500    0.021\n"},
		"one GPU in a gang": {allocation.Candidate{Node: "n"}, "n     -      -          -          -        -\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &allocation.Decision{Candidates: []allocation.Candidate{tc.candidate}}
			c := &explain.Choice{Node: "n", Set: &explain.Set{}, Decision: d}
			got := string(explanationText(&explain.Explanation{Kind: "Pod", Name: "p", State: explain.Bound, Choice: c}))
			if !strings.HasSuffix(got, "KEPT FOR OTHERS\n"+tc.want) {
				t.Errorf("got\n%s\nwant the row\n%s", got, tc.want)
			}
		})
	}
}
