// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// The actions of fabric label for one label of one node.
const (
	labelSet     = "set"     // the node has none
	labelReplace = "change"  // it has another value
	labelRemove  = "remove"  // the file has no domain for it
	labelDiffers = "differs" // as change, which needs --overwrite
	labelKept    = "kept"    // as remove, which needs --overwrite
)

// labelChange is one label of one node that differs from the file.
type labelChange struct {
	Node   string `json:"node"`
	Label  string `json:"label"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Action string `json:"action"`
}

// labelling is the output of fabric label; its JSON form is part of the command's contract.
type labelling struct {
	Applied bool          `json:"applied"`
	Levels  []levelLabel  `json:"levels"` // outermost first
	Changes []labelChange `json:"changes"`
	// Unchanged is the number of labels that are correct already.
	Unchanged int `json:"unchanged"`
	// Unknown are nodes of the file that the cluster does not have.
	Unknown []string `json:"unknown,omitempty"`
}

// levelLabel is a level and its node label.
type levelLabel struct {
	Level string `json:"level"`
	Label string `json:"label"`
}

// count counts the changes of an action.
func (l *labelling) count(action string) (n int) {
	for i := range l.Changes {
		if l.Changes[i].Action == action {
			n++
		}
	}
	return n
}

// planLabels compares the labels of a cluster's nodes with a file.
func planLabels(levels []levelLabel, paths []fabric.NodePath, nodes []v1.Node, overwrite bool) *labelling {
	out := &labelling{Levels: levels, Changes: []labelChange{}}
	wanted := make(map[string][]string, len(paths))
	for _, p := range paths {
		wanted[p.Node] = p.Path
	}
	names := make([]string, 0, len(nodes))
	has := make(map[string]map[string]string, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
		has[nodes[i].Name] = nodes[i].Labels
	}
	slices.SortFunc(names, fabric.CompareNames)
	for _, name := range names {
		for d, l := range levels {
			to := ""
			if path := wanted[name]; d < len(path) {
				to = path[d]
			}
			c := labelChange{Node: name, Label: l.Label, From: has[name][l.Label], To: to}
			if c.From == c.To {
				if to != "" {
					out.Unchanged++
				}
				continue
			}
			c.Action = actionOf(&c, overwrite)
			out.Changes = append(out.Changes, c)
		}
	}
	for _, p := range paths {
		if _, ok := has[p.Node]; !ok {
			out.Unknown = append(out.Unknown, p.Node)
		}
	}
	return out
}

func actionOf(c *labelChange, overwrite bool) string {
	switch {
	case c.From == "":
		return labelSet
	case c.To == "" && overwrite:
		return labelRemove
	case c.To == "":
		return labelKept
	case overwrite:
		return labelReplace
	}
	return labelDiffers
}

// pairCSV finds the label of each level of a table, by the level's name. Labels without a level in the
// table are left alone.
func pairCSV(names []string, known []levelLabel) ([]levelLabel, error) {
	out := make([]levelLabel, len(names))
	for i, name := range names {
		at := slices.IndexFunc(known, func(l levelLabel) bool { return l.Level == name })
		if at < 0 {
			return nil, fmt.Errorf("no label is known for level %q: name it, as in --label %s=example.com/%s", name, name, name)
		}
		out[i] = known[at]
	}
	return out, nil
}

// checkPaths refuses paths that form no tree, and names that no label can have.
func checkPaths(levels []levelLabel, paths []fabric.NodePath) error {
	spec := &fabric.Spec{Nodes: paths}
	for _, l := range levels {
		spec.Levels = append(spec.Levels, fabric.Level{Name: l.Level})
	}
	_, faults, err := fabric.NewTree(spec)
	if err == nil && len(faults) > 0 {
		err = &faults[0]
	}
	if err != nil {
		return err
	}
	for _, p := range paths {
		for d, domain := range p.Path {
			if errs := validation.IsValidLabelValue(domain); len(errs) > 0 {
				return fmt.Errorf("node %q: %s %q cannot be a label's value: %s", p.Node, levels[d].Level, domain, errs[0])
			}
		}
	}
	return nil
}

// parseLevelLabels reads the values of --label.
func parseLevelLabels(flags []string) (out []levelLabel, err error) {
	for _, text := range flags {
		level, label, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("--label %q: want LEVEL=LABEL, as in rack=topology.kubernetes.io/rack", text)
		}
		if errs := slices.Concat(validation.IsDNS1123Label(level), validation.IsQualifiedName(label)); len(errs) > 0 {
			return nil, usagef("--label %q: %s", text, errs[0])
		}
		if slices.ContainsFunc(out, func(l levelLabel) bool { return l.Level == level || l.Label == label }) {
			return nil, usagef("--label %q: the level or the label is there twice", text)
		}
		out = append(out, levelLabel{level, label})
	}
	return out, nil
}

// labelsOf returns the levels of a ClusterTopology with their labels.
func labelsOf(levels []v1alpha1.FabricLevel) (out []levelLabel) {
	for i := range levels {
		out = append(out, levelLabel{levels[i].Name, levels[i].NodeLabel})
	}
	return out
}
