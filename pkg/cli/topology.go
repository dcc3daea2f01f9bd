// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// showingTopology is the command topology with its flags.
type showingTopology struct {
	out    viewOutput
	source clusterSource
	levels []string
	svg    string
}

func newTopology() *cobra.Command {
	var o showingTopology
	cmd := &cobra.Command{
		Use:   "topology [NODE]",
		Short: "Show the links of a node with the pods on its GPUs, or the whole cluster as a tree",
		Long: `With NODE: its link matrix in the form of "nvidia-smi topo -m", with CPUs and NUMA nodes,
its network adapters, the health of each GPU, and the pods on them with the rings that
they got. --svg FILE draws the links.

Without NODE: the fabric as a tree of its levels, nodes and pods. A bar shows how many of
the GPUs pods hold, and X8 to X1 how many pods of so many GPUs fit. -g takes only some
of the levels, in the order that is given; "node" and "pod" are levels, too.

` + saved,
		Example: `  NVTOPO topology gpu-node-7
  NVTOPO topology gpu-node-7 --svg node.svg
  NVTOPO topology
  NVTOPO topology -g rack
  NVTOPO topology -g spine,pod --from cluster.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q: %s takes one node at most, see '%s --help'", args[1], cmd.Name(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return o.node(cmd, args[0])
			}
			return o.tree(cmd)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return o.source.cluster.suggestNodes(cmd.Context(), args, toComplete)
		},
	}
	o.out.bind(cmd)
	o.source.bind(cmd)
	cmd.Flags().StringSliceVarP(&o.levels, "group-by", "g", nil, "levels of the tree, outermost first (default: all)")
	cmd.Flags().StringVar(&o.svg, "svg", "", "with NODE: draw its links into this file")
	return cmd
}

func (o *showingTopology) view(cmd *cobra.Command) (*clusterview.View, error) {
	if err := o.out.check(); err != nil {
		return nil, err
	}
	read, err := o.source.reader(cmd)
	if err != nil {
		return nil, err
	}
	return read(cmd.Context())
}

func (o *showingTopology) tree(cmd *cobra.Command) error {
	if o.svg != "" {
		return usagef("--svg draws one node: name it")
	}
	v, err := o.view(cmd)
	if err != nil {
		return err
	}
	root, err := v.Group(o.levels)
	if err != nil {
		return usagef("--group-by: %w", err)
	}
	p := paletteFor(cmd.OutOrStdout())
	return o.out.write(cmd.OutOrStdout(), root, func(w io.Writer) error {
		t := &table{}
		head := []any{"GROUP", "USED", ""}
		for _, k := range clusterview.Sizes() {
			head = append(head, fmt.Sprintf("X%d", k))
		}
		t.row(append(head, "NOTE")...)
		treeRows(t, root, "", "", p)
		if err := t.write(w); err != nil {
			return err
		}
		for _, problem := range v.Problems {
			printf(w, "Problem  %s\n", p.warning(problem))
		}
		return nil
	})
}

// treeRows adds the rows of a group and of its parts; first is the prefix of its own name, and rest that
// of those below.
func treeRows(t *table, g *clusterview.Group, first, rest string, p palette) {
	s := &g.Supply
	row := []any{first + g.Name, bar(s.UsedGPUs, s.GPUs, p), fmt.Sprintf("%d/%d", s.UsedGPUs, s.GPUs)}
	if g.Pod != nil {
		row[1], row[2] = "", strconv.Itoa(s.GPUs)
	}
	for i := range s.Slots {
		cell := strconv.Itoa(s.Slots[i].Free)
		if g.Pod != nil {
			cell = ""
		}
		row = append(row, cell)
	}
	note := strings.TrimPrefix(strings.TrimSuffix(g.Closed+"; "+g.Note, "; "), "; ")
	t.row(append(row, p.warning(note)+safe(printable(podNote(g.Pod))))...)
	for i := range g.Groups {
		own, below := "├─ ", "│  "
		if i == len(g.Groups)-1 {
			own, below = "└─ ", "   "
		}
		treeRows(t, &g.Groups[i], rest+own, rest+below, p)
	}
}

// podNote describes a pod's GPUs and its gang.
func podNote(pod *clusterview.Pod) string {
	if pod == nil {
		return ""
	}
	note := "GPUs " + join(pod.GPUs)
	switch {
	case pod.Counted > 0:
		note = "GPUs by number"
	case len(pod.GPUs) == 0:
		note = ""
	}
	if pod.Lost != "" {
		note = strings.TrimPrefix(note+"; "+pod.Lost, "; ")
	}
	if pod.Ring != nil {
		note += ", " + pod.Ring.Class
	}
	if pod.Gang != "" {
		note += ", " + pod.Gang
	}
	return note
}

// barWidth is the number of signs of a bar.
const barWidth = 16

// bar shows a share. Any share above 0 has at least one sign, and any below 1 is at least one less than
// full.
func bar(used, all int, p palette) safe {
	if all == 0 {
		return ""
	}
	full := (used*barWidth + all/2) / all
	switch {
	case used >= all:
		full = barWidth
	case used > 0:
		full = min(max(full, 1), barWidth-1)
	}
	return p.taken(strings.Repeat("█", full)) + safe(strings.Repeat("░", barWidth-full))
}

func (o *showingTopology) node(cmd *cobra.Command, name string) error {
	if len(o.levels) > 0 {
		return usagef("--group-by groups the cluster: it cannot be used with a node")
	}
	v, err := o.view(cmd)
	if err != nil {
		return err
	}
	n := v.Node(name)
	switch {
	case n == nil:
		return inputf("the cluster has no node %q", name)
	case n.Graph() == nil && n.NoGraph != "":
		return inputf("node %q: %s", name, n.NoGraph)
	case n.Graph() == nil:
		return inputf("node %q has no graph of %s: does the exporter run there?", name, v.Resource)
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, drawLinks(n), 0o600); err != nil {
			return inputf("--svg: %w", err)
		}
	}
	p := paletteFor(cmd.OutOrStdout())
	return o.out.write(cmd.OutOrStdout(), n, func(w io.Writer) error { return writeNode(w, v, n, p) })
}

// writeNode prints one node: its matrix, then its GPUs and the pods on them.
func writeNode(w io.Writer, v *clusterview.View, n *clusterview.Node, p palette) error {
	head := &table{}
	head.row("Node", n.Name)
	for i, level := range v.Levels {
		head.row(strings.ToUpper(level[:1])+level[1:], orDash(n.Domains[i]))
	}
	if why := strings.Join(slices.DeleteFunc([]string{n.Closed, n.NoGraph}, func(s string) bool { return s == "" }), "; "); why != "" {
		head.row("Closed", p.warning(why))
	}
	for _, note := range []string{n.Note, n.Refuses} {
		if note != "" {
			head.row("Note", p.warning(note))
		}
	}
	if err := head.write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := writeMatrix(w, &input{graph: n.Graph()}, cellOf("class"), true); err != nil {
		return err
	}
	fmt.Fprintln(w)
	gpus := &table{}
	gpus.row("GPU", "STATE", "PODS")
	for i := range n.GPUs {
		g := &n.GPUs[i]
		gpus.row(strconv.Itoa(g.Index), stateCell(g, p), orDash(strings.Join(g.Pods, " ")))
	}
	if err := gpus.write(w); err != nil || len(n.Pods) == 0 {
		return err
	}
	fmt.Fprintln(w)
	pods := &table{}
	pods.row("POD", "GPUS", "RING", "GB/S", "BEST", "NOTE")
	for i := range n.Pods {
		pods.row(podRow(&n.Pods[i], p)...)
	}
	return pods.write(w)
}

func stateCell(g *clusterview.GPU, p palette) safe {
	text := string(g.State)
	if g.Reason != "" {
		text += ", " + g.Reason
	}
	switch g.State {
	case clusterview.Used:
		return p.taken(text)
	case clusterview.Free:
		return p.good(text)
	case clusterview.Unhealthy:
		return p.bad(text)
	case clusterview.Degraded, clusterview.MIG:
	}
	return p.warning(text)
}

func podRow(pod *clusterview.Pod, p palette) []any {
	gpus := join(pod.GPUs)
	if pod.Counted > 0 {
		gpus = strings.TrimPrefix(fmt.Sprintf("%s and %d by number", gpus, pod.Counted), " and ")
	}
	if pod.AbsentGPUs > 0 {
		gpus = strings.TrimPrefix(fmt.Sprintf("%s and %d gone", gpus, pod.AbsentGPUs), " and ")
	}
	row := []any{pod.FullName(), gpus, "-", "-", "-"}
	if r := pod.Ring; r != nil {
		now := safe(nvtopo.FormatDecimal(r.BandwidthGBps))
		if r.BandwidthGBps < r.BestBandwidthGBps {
			now = p.warning(string(now))
		}
		row[2], row[3], row[4] = joinRing(r.GPUs)+" "+r.Class, now, nvtopo.FormatDecimal(r.BestBandwidthGBps)
	}
	note := pod.Gang
	if pod.Lost != "" {
		note = strings.TrimPrefix(note+"; "+pod.Lost, "; ")
	}
	if pod.Gone {
		note = "gone, its GPUs are not released yet"
	}
	return append(row, note)
}

// joinRing writes a ring as pick does, without its first GPU at the end.
func joinRing(gpus []int) string {
	out := make([]string, len(gpus))
	for i, g := range gpus {
		out[i] = strconv.Itoa(g)
	}
	return strings.Join(out, "-")
}
