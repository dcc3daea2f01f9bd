// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// Reasons of a ClusterTopology's conditions for a sound fabric.
const (
	reasonUsable   = "Usable"
	reasonTree     = "Tree"
	reasonLabelled = "Labelled"
)

const (
	// shownProblems is the number of problems, and shownNodes the number of nodes, that a condition names.
	shownProblems = 5
	shownNodes    = 5
	// maxMessage bounds a condition's message in bytes; the schema admits 2048 characters.
	maxMessage = 2048
)

// Status returns the status of a ClusterTopology: the counts and the conditions, without their transition
// times.
func Status(ct *v1alpha1.ClusterTopology, tree *fabric.Tree, problems []Problem) v1alpha1.ClusterTopologyStatus {
	out := v1alpha1.ClusterTopologyStatus{ObservedGeneration: ct.Generation, Nodes: int32(tree.Len())}
	for d := 1; d <= tree.Depth(); d++ {
		out.Domains = append(out.Domains, countDomains(tree, d))
	}
	of := func(kind Kind) []Problem {
		return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Kind != kind })
	}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonUsable, Message: "all of spec counts"}
	for _, kind := range []Kind{UnknownDomain, Invalid} { // the worse one last
		if found := of(kind); len(found) > 0 {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(kind), list(found)
		}
	}
	tangled := metav1.Condition{Type: v1alpha1.ConditionNotATree, Status: metav1.ConditionFalse, Reason: reasonTree, Message: "the labels of all nodes make a tree"}
	if found := of(NotATree); len(found) > 0 {
		tangled.Status, tangled.Reason, tangled.Message = metav1.ConditionTrue, string(NotATree), list(found)
	}
	missing := metav1.Condition{
		Type: v1alpha1.ConditionLabelsMissing, Status: metav1.ConditionFalse, Reason: reasonLabelled, Message: "all nodes with GPUs have all labels",
	}
	if found := of(LabelsMissing); len(found) > 0 {
		missing.Status, missing.Reason, missing.Message = metav1.ConditionTrue, string(LabelsMissing), byLevel(found)
	}
	for _, c := range []metav1.Condition{ready, tangled, missing} {
		c.ObservedGeneration, c.Message = ct.Generation, cut(c.Message)
		out.Conditions = append(out.Conditions, c)
	}
	return out
}

func countDomains(tree *fabric.Tree, depth int) v1alpha1.LevelDomains {
	out := v1alpha1.LevelDomains{Level: tree.LevelName(depth)}
	for i := range tree.Domains(depth) {
		d := &tree.Domains(depth)[i]
		if d.Name == "" {
			continue
		}
		out.Domains++
		out.Nodes += int32(d.Nodes())
		out.Largest = max(out.Largest, int32(d.Nodes()))
	}
	return out
}

// list names the first problems and counts the others.
func list(problems []Problem) string {
	var parts []string
	for i := range problems[:min(len(problems), shownProblems)] {
		parts = append(parts, problems[i].String())
	}
	return more(strings.Join(parts, "; "), len(problems)-len(parts))
}

func more(text string, others int) string {
	if others > 0 {
		return fmt.Sprintf("%s and %d more", text, others)
	}
	return text
}

// byLevel lists, for each level, the first nodes that lack its label and the number of the others.
func byLevel(problems []Problem) string {
	var levels []string
	nodes, texts := map[string][]string{}, map[string]string{}
	for _, p := range problems {
		if texts[p.Level] == "" {
			levels, texts[p.Level] = append(levels, p.Level), p.Text
		}
		nodes[p.Level] = append(nodes[p.Level], p.Node)
	}
	var parts []string
	for _, l := range levels {
		names := nodes[l]
		slices.SortFunc(names, fabric.CompareNames)
		shown := min(len(names), shownNodes)
		noun := "nodes have"
		if len(names) == 1 {
			noun = "node has"
		}
		parts = append(parts, more(fmt.Sprintf("%s: %d %s %s: %s", l, len(names), noun, texts[l], strings.Join(names[:shown], ", ")), len(names)-shown))
	}
	return strings.Join(parts, "; ")
}

// cut shortens a text to maxMessage bytes at a character boundary.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const dots = "…"
	return strings.ToValidUTF8(text[:maxMessage-len(dots)], "") + dots
}
