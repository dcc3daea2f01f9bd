// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// labelManager is the field manager of the labels that fabric label writes.
const labelManager = "nvtopo-fabric-label"

// fabricLabels has the flags of fabric label.
type fabricLabels struct {
	out              outputFlag
	fabric           string
	labels           []string
	topology         string
	apply, overwrite bool
	cluster          clusterFlags
}

func newFabricLabel() *cobra.Command {
	var o fabricLabels
	cmd := &cobra.Command{
		Use:   "label --fabric FILE",
		Short: "Label a cluster's nodes with their racks and switches",
		Long: `Label the nodes of a cluster with where they are in the fabric, as a CSV file has it:
node and the levels, outermost first; see NVTOPO fabric place. A file that describes
no tree is refused.

The labels are those of --label, once for each level; else those of the levels in
--topology, a file with a ClusterTopology; else in the cluster's own; else those under
topology.kubernetes.io for the levels zone, switch and rack.

Nothing is written without --apply: the command prints what it would change. Labels
that have another value, and labels of nodes that the file does not know, stay as
they are; --overwrite replaces the former and removes the latter. As long as a label
has another value and --overwrite is not given, nothing is written at all.

With -o json the answer is one object:
  applied    whether it was written
  levels     level and label, outermost first
  changes    node, label, from, to and action: set, change, remove, and what
             needs --overwrite: differs (would be change), kept (would be remove)
  unchanged  how many labels are as they should be
  unknown    nodes of the file that the cluster does not have

The exit code is 1 if some label differs and --overwrite is not given.`,
		Example: `  NVTOPO fabric label --fabric fabric.csv --label spine=example.com/spine --label leaf=example.com/leaf
  NVTOPO fabric label --fabric fabric.csv --apply`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.bind(cmd)
	o.cluster.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.fabric, "fabric", "", `CSV with the domains of each node; "-" is standard input`)
	f.StringArrayVar(&o.labels, "label", nil, "LEVEL=LABEL: the node label of a level; may be repeated")
	f.StringVar(&o.topology, "topology", "", "file with a ClusterTopology whose levels have the labels")
	f.BoolVar(&o.apply, "apply", false, "write the labels")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace labels that have another value, and remove those that the file does not have")
	return cmd
}

func (o *fabricLabels) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.cluster.clients()
	if err != nil {
		return err
	}
	known, err := o.knownLabels(cmd, c)
	if err != nil {
		return err
	}
	levels, paths, err := o.read(cmd, known)
	if err != nil {
		return err
	}
	nodes, err := listNodes(cmd.Context(), c.kube)
	if err != nil {
		return inputf("%w", err)
	}
	plan := planLabels(levels, paths, nodes, o.overwrite)
	differs := plan.count(labelDiffers)
	if o.apply && differs == 0 {
		if err := applyLabels(cmd.Context(), c.kube, plan, nodes); err != nil {
			return inputf("%w", err)
		}
	}
	if err := o.out.write(cmd.OutOrStdout(), plan, func(w io.Writer) error { return writeLabelling(w, plan) }); err != nil {
		return err
	}
	if differs > 0 {
		return noAnswerf("%d labels have another value: --overwrite replaces them", differs)
	}
	return nil
}

// check refuses flags that are wrong for any file and cluster.
func (o *fabricLabels) check() error {
	switch {
	case o.fabric == "":
		return usagef("--fabric is needed: the file with the domains of each node")
	case len(o.labels) > 0 && o.topology != "":
		return usagef("--label and --topology cannot both be given")
	case o.topology == stdin && o.fabric == stdin:
		return usagef("only one file can be standard input")
	}
	return o.out.check()
}

// knownLabels returns the labels to choose from; none if they are not given.
func (o *fabricLabels) knownLabels(cmd *cobra.Command, c *clusterClients) ([]levelLabel, error) {
	if len(o.labels) > 0 {
		return parseLevelLabels(o.labels)
	}
	if o.topology != "" {
		ct, err := readClusterTopology(cmd, o.topology)
		if err != nil {
			return nil, err
		}
		return labelsOf(ct.Spec.Levels), nil
	}
	ct, err := fetchClusterTopology(cmd.Context(), c.dyn)
	if err != nil || ct == nil {
		return nil, err
	}
	return labelsOf(ct.Spec.Levels), nil
}

// read reads the file, and pairs its levels with labels.
func (o *fabricLabels) read(cmd *cobra.Command, known []levelLabel) ([]levelLabel, []fabric.NodePath, error) {
	text, err := readLarge(cmd, o.fabric)
	if err != nil {
		return nil, nil, err
	}
	levels, paths, err := tableLabels(text, known)
	if err == nil {
		err = checkPaths(levels, paths)
	}
	if err != nil {
		return nil, nil, inputf("%s: %w", shownName(o.fabric), err)
	}
	return levels, paths, nil
}

// stockLabels are the labels under topology.kubernetes.io.
func stockLabels() []levelLabel { return labelsOf(clustertopology.Presets()[0].Levels) }

func tableLabels(text []byte, known []levelLabel) ([]levelLabel, []fabric.NodePath, error) {
	if known == nil {
		known = stockLabels()
	}
	names, paths, err := fabric.ReadCSV(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	levels, err := pairCSV(names, known)
	return levels, paths, err
}

// listNodes lists the nodes of a cluster page by page.
func listNodes(ctx context.Context, kube kubernetes.Interface) (out []v1.Node, err error) {
	const page = 500
	opts := metav1.ListOptions{Limit: page}
	for {
		list, err := kube.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		out = append(out, list.Items...)
		if opts.Continue = list.Continue; opts.Continue == "" {
			return out, nil
		}
	}
}

// applyLabels writes the changes, one request for each node. A node that was replaced since it was read is
// refused, by its UID. Labels that need --overwrite are not changed.
func applyLabels(ctx context.Context, kube kubernetes.Interface, plan *labelling, nodes []v1.Node) error {
	uids := make(map[string]types.UID, len(nodes))
	for i := range nodes {
		uids[nodes[i].Name] = nodes[i].UID
	}
	var nodesInOrder []string
	values := map[string]map[string]any{} // node -> label -> value; nil: none
	for _, c := range plan.Changes {
		if c.Action == labelKept {
			continue
		}
		if values[c.Node] == nil {
			nodesInOrder, values[c.Node] = append(nodesInOrder, c.Node), map[string]any{}
		}
		values[c.Node][c.Label] = nil
		if c.To != "" {
			values[c.Node][c.Label] = c.To
		}
	}
	var errs []error
	for _, node := range nodesInOrder {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uids[node], "labels": values[node]}})
		if err != nil {
			return fmt.Errorf("labels of node %s: %w", node, err)
		}
		if _, err := kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: labelManager}); err != nil {
			errs = append(errs, fmt.Errorf("label node %s: %w", node, err))
		}
	}
	plan.Applied = len(errs) == 0
	return errors.Join(errs...)
}

func writeLabelling(w io.Writer, plan *labelling) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(plan.Changes) > 0 {
		fmt.Fprintln(out, "NODE\tLABEL\tNOW\tNEW\tACTION")
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, c := range plan.Changes {
		printf(out, "%s\t%s\t%s\t%s\t%s\n", c.Node, c.Label, dash(c.From), dash(c.To), c.Action)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(plan.Unknown) > 0 {
		const shown = 5
		names := strings.Join(plan.Unknown[:min(shown, len(plan.Unknown))], ", ")
		if more := len(plan.Unknown) - shown; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		printf(w, "Not in the cluster: %s\n", names)
	}
	write := plan.count(labelSet) + plan.count(labelReplace) + plan.count(labelRemove)
	switch {
	case plan.Applied:
		printf(w, "%d labels written, %d were right.\n", write, plan.Unchanged)
	case write == 0:
		printf(w, "No label to write, %d are right.\n", plan.Unchanged)
	default:
		printf(w, "%d labels to write, %d are right. Nothing was written.\n", write, plan.Unchanged)
	}
	return nil
}
