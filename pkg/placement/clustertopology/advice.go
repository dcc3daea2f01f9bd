// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// labelCommand is what writes the labels of levels on nodes.
const labelCommand = "nvtopo fabric label --fabric FILE --apply"

// MissingLevel says what to do where somebody asks for a level that a fabric does not have, by its name or
// its node label. If it is one that every cluster has whose nodes are labelled, the labels are missing;
// else the name is wrong, and the message lists the levels that there are.
func MissingLevel(tree *fabric.Tree, wish string) string {
	known := kubernetesLevels()
	at := slices.IndexFunc(known, func(l v1alpha1.FabricLevel) bool { return l.Name == wish || l.NodeLabel == wish })
	switch {
	case at >= 0:
		return fmt.Sprintf("no node has the label %s, or the ClusterTopology leaves it out: %s writes it", known[at].NodeLabel, labelCommand)
	case tree.Depth() == 0:
		return fmt.Sprintf("no node has the label of any level, such as %s: %s writes them", RackLabel, labelCommand)
	}
	var names []string
	for _, l := range tree.Levels() {
		names = append(names, l.Name)
	}
	return "it has " + strings.Join(names, ", ") + "; correct the value"
}

// MissingLabels says what to do where nodes lack the label of a level, so that each of them is a domain of
// its own; empty where none does. The depth is that of the level in the tree.
func MissingLabels(tree *fabric.Tree, depth int, label string) string {
	if depth < 1 || depth > tree.Depth() {
		return ""
	}
	lack := 0
	for _, d := range tree.Domains(depth) {
		if d.Name == "" {
			lack += d.End - d.First
		}
	}
	switch {
	case lack == 0:
		return ""
	case lack == tree.Len():
		return fmt.Sprintf("no node has the label %s: %s writes it", label, labelCommand)
	}
	return fmt.Sprintf("of %d nodes %d lack the label %s: %s writes it", tree.Len(), lack, label, labelCommand)
}
