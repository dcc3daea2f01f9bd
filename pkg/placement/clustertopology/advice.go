// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// labelCommand writes the labels of levels on nodes.
const labelCommand = "nvtopo fabric label --fabric FILE --apply"

// MissingLevel returns advice for a request of a level that the fabric does not have, given by its name or
// its node label. If it is a level of every cluster with labelled nodes, the labels are missing; else the
// name is wrong, and the message lists the existing levels.
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

// MissingLabels returns advice for nodes that lack the label of a level, so that each of them is a domain
// of its own; empty if none does. depth is the level's depth in the tree.
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
