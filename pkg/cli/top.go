// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// topping is the command top with its flags.
type topping struct {
	out      viewOutput
	source   clusterSource
	watch    bool
	interval time.Duration
	clock    clock.Clock
}

func newTop() *cobra.Command {
	o := topping{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show each node's GPUs: who uses what is free, how good it is, and what is fragmented",
		Long: `Show what every node has free and how good that is. One line a node:
  GPUS     one sign a GPU: # held by a pod, . free, ~ degraded and free, x unhealthy,
           m partitioned, and after + how many of the free ones cannot be had: pods hold
           them by number only, or kubelet has fewer left than the graph, see NOTE
  LARGEST  the largest free linked group: its GPUs and the class of its weakest link
  RING 8, 4, 2  the best ring of so many free GPUs now, in GB/s, and after / what it is
           on the empty machine if that is more
  X8 to X1 how many pods of so many GPUs fit, if all are of that size, and after / how
           many on the empty machine
Nodes that are closed, or have no graph that counts, have nothing free. The total below
says how many of the free GPUs have a direct link to another free one.

With --min-link only nodes that have such a link are shown, and only sets of which any two
GPUs have it count: in LARGEST, RING, X8 to X2, the total and all that is below.

Below, by GPU model: NODES, GPUS, USED and FREE of all nodes that have it, WHOLE nodes of
which all GPUs are free, and the LARGEST free linked group of a node.

Below that, for the whole cluster, by size of group and link class:
  SLOTS, CAPACITY  as X8 to X1
  LINKED, CAPACITY  free groups whose ring is as fast as the machine's best of that size,
           and how many of these the empty machines of the class have
  IDEAL    how many so many free GPUs could be, if pods stood ideally
  FRAGMENTED  the share of IDEAL that is missing
  MENDABLE groups that a few moves of pods would free, see NVTOPO defrag

` + saved,
		Example: `  NVTOPO top
  NVTOPO top --watch
  NVTOPO top --min-link NVLINK
  NVTOPO top -o json | jq '.nodes[] | select(.largest.gpus | length >= 4) | .name'
  NVTOPO top --from cluster.yaml -o wide`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.bind(cmd)
	o.source.bind(cmd)
	o.source.bindMinLink(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again whenever it changes, until interrupted")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "with --watch: how often to look")
	return cmd
}

func (o *topping) run(cmd *cobra.Command) error {
	if err := o.out.check(); err != nil {
		return err
	}
	switch {
	case o.watch && len(o.source.from) > 0:
		return usagef("--from reads files: --watch cannot be used with it")
	case o.watch && o.interval <= 0:
		return usagef("--interval %v: want more than 0", o.interval)
	}
	read, err := o.source.reader(cmd)
	if err != nil {
		return err
	}
	if !o.watch {
		return o.show(cmd.Context(), cmd.OutOrStdout(), paletteFor(cmd.OutOrStdout()), read)
	}
	return o.follow(cmd.Context(), cmd.OutOrStdout(), read)
}

func (o *topping) show(ctx context.Context, w io.Writer, p palette, read func(context.Context) (*clusterview.View, error)) error {
	v, err := read(ctx)
	if err != nil {
		return err
	}
	v.Advice = v.AdviseAll(0)
	return o.out.write(w, v, func(w io.Writer) error { return writeTop(w, v, p, o.out.wide()) })
}

// clearScreen moves the cursor to the top and clears the screen below.
const clearScreen = "\x1b[H\x1b[2J"

// follow shows the cluster whenever the output changes. A terminal is cleared before; elsewhere one output
// follows the other. It ends without an error when ctx does.
func (o *topping) follow(ctx context.Context, w io.Writer, read func(context.Context) (*clusterview.View, error)) error {
	last := ""
	for ctx.Err() == nil {
		var b strings.Builder
		if err := o.show(ctx, &b, paletteFor(w), read); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was interrupted while it read, which is how it ends
			}
			return err
		}
		if text := b.String(); text != last {
			if isTerminal(w) {
				text = clearScreen + text
			}
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			last = b.String()
		}
		select {
		case <-ctx.Done():
		case <-o.clock.After(o.interval):
		}
	}
	return nil
}

func writeTop(w io.Writer, v *clusterview.View, p palette, wide bool) error {
	t := &table{}
	head := []any{"NODE", "GPUS", "USED", "FREE", "LARGEST"}
	for _, k := range clusterview.Sizes() {
		if k > 1 {
			head = append(head, fmt.Sprintf("RING %d", k))
		}
	}
	for _, k := range clusterview.Sizes() {
		head = append(head, fmt.Sprintf("X%d", k))
	}
	if wide {
		head = append(head, "MODEL", "IN", "PODS")
	}
	t.row(append(head, "NOTE")...)
	for _, n := range v.Nodes {
		if n.Supply.GPUs == 0 && len(n.Pods) == 0 && n.NoGraph == "" {
			continue // a node without GPUs
		}
		t.row(topRow(n, p, wide)...)
	}
	if err := t.write(w); err != nil {
		return err
	}
	writeTotal(w, v)
	if err := writeModels(w, v); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := writeSizes(w, v, p); err != nil {
		return err
	}
	for i, problem := range v.Problems {
		if i == 0 {
			fmt.Fprintln(w)
		}
		printf(w, "Problem  %s\n", p.warning(problem))
	}
	return nil
}

// writeTotal writes the totals of the nodes.
func writeTotal(w io.Writer, v *clusterview.View) {
	s, link := &v.Supply, "a direct link (NVLINK, XGMI or HCCS)"
	if v.MinLink != "" {
		link = "a link of " + v.MinLink + " or better"
	}
	printf(w, "Total: %s, %s, %d used, %d free, of which %d have %s to another free one\n",
		count(s.Nodes, "node"), count(s.GPUs, "GPU"), s.UsedGPUs, s.FreeGPUs, s.JoinedGPUs, link)
}

func topRow(n *clusterview.Node, p palette, wide bool) []any {
	row := []any{n.Name, signs(n, p), strconv.Itoa(n.Supply.UsedGPUs), strconv.Itoa(n.Supply.FreeGPUs), largestCell(n.Largest)}
	for _, k := range clusterview.Sizes() {
		if k > 1 {
			row = append(row, ringCell(n, k, p))
		}
	}
	for _, s := range n.Supply.Slots {
		row = append(row, fmt.Sprintf("%d/%d", s.Free, s.Capacity))
	}
	if wide {
		var pods []string
		for i := range n.Pods {
			pods = append(pods, podAndGPUs(&n.Pods[i]))
		}
		row = append(row, orDash(n.Model), orDash(strings.Join(n.Domains, "/")), orDash(strings.Join(pods, " ")))
	}
	note := n.Closed
	for _, more := range []string{n.NoGraph, n.Note, n.Refuses} {
		if more != "" {
			note = strings.TrimPrefix(note+"; "+more, "; ")
		}
	}
	return append(row, p.warning(note))
}

// largestCell returns the size and the class of a group.
func largestCell(r *clusterview.Ring) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%d %s", len(r.GPUs), r.Class)
}

// writeModels writes the totals of the nodes by GPU model; nothing if no node has a graph.
func writeModels(w io.Writer, v *clusterview.View) error {
	if len(v.Models) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := &table{}
	t.row("MODEL", "NODES", "GPUS", "USED", "FREE", "WHOLE", "LARGEST")
	for i := range v.Models {
		m := &v.Models[i]
		s := &m.Supply
		t.row(orDash(m.Model), strconv.Itoa(s.Nodes), strconv.Itoa(s.GPUs), strconv.Itoa(s.UsedGPUs), strconv.Itoa(s.FreeGPUs),
			strconv.Itoa(m.WholeNodes), largestCell(m.Largest))
	}
	return t.write(w)
}

// signs returns the GPUs of a node as one sign each.
func signs(n *clusterview.Node, p palette) safe {
	var out safe
	for i := range n.GPUs {
		switch n.GPUs[i].State {
		case clusterview.Used:
			out += p.taken("#")
		case clusterview.Free:
			out += p.good(".")
		case clusterview.Degraded:
			out += p.warning("~")
		case clusterview.MIG:
			out += p.warning("m")
		case clusterview.Unhealthy:
			out += p.bad("x")
		}
	}
	if n.CountedGPUs > 0 {
		out += safe(fmt.Sprintf("+%d", n.CountedGPUs))
	}
	return cmp.Or(out, "-")
}

// ringCell returns the best ring of k GPUs now, and the best possible.
func ringCell(n *clusterview.Node, k int, p palette) safe {
	for i := range n.Rings {
		r := &n.Rings[i]
		if len(r.GPUs) != k {
			continue
		}
		return ringSpeed(r.BandwidthGBps, r.BestBandwidthGBps, p)
	}
	return "-"
}

// ringSpeed is the bandwidth of a ring, and after / the best of as many GPUs if that is more; - without a
// ring.
func ringSpeed(gbps, best float64, p palette) safe {
	switch {
	case gbps == 0:
		return "-"
	case gbps < best:
		return p.warning(nvtopo.FormatDecimal(gbps) + "/" + nvtopo.FormatDecimal(best))
	}
	return safe(nvtopo.FormatDecimal(gbps))
}

func podAndGPUs(pod *clusterview.Pod) string {
	switch {
	case pod.Counted > 0:
		return fmt.Sprintf("%s[%d by number]", pod.FullName(), pod.Counted)
	case len(pod.GPUs) == 0:
		return fmt.Sprintf("%s[%d gone]", pod.FullName(), pod.AbsentGPUs)
	}
	return fmt.Sprintf("%s[%s]", pod.FullName(), join(pod.GPUs))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// writeSizes writes, for each size of group, the present number of groups beside the possible one.
func writeSizes(w io.Writer, v *clusterview.View, p palette) error {
	t := &table{}
	t.row("SIZE", "SLOTS", "CAPACITY", "CLASS", "LINKED", "CAPACITY", "IDEAL", "FRAGMENTED", "MENDABLE")
	for _, s := range v.Supply.Slots {
		mend := "-"
		for i := range v.Advice {
			if a := &v.Advice[i]; a.GPUs == s.GPUs && a.After > a.Before {
				mend = fmt.Sprintf("%d by %s", a.After-a.Before, count(len(a.Moves), "move"))
			}
		}
		first := []any{strconv.Itoa(s.GPUs), strconv.Itoa(s.Free), strconv.Itoa(s.Capacity)}
		if len(s.Linked) == 0 {
			t.row(append(first, "-", "-", "-", "-", "-", mend)...)
		}
		for i := range s.Linked {
			l := &s.Linked[i]
			t.row(append(first, l.Class, strconv.Itoa(l.Free), strconv.Itoa(l.Capacity), strconv.Itoa(l.Ideal), share(l, p), mend)...)
			first, mend = []any{"", "", ""}, ""
		}
	}
	return t.write(w)
}

// share is the missing share of the ideal.
func share(l *clusterview.Linked, p palette) safe {
	if l.Ideal == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.0f%%", 100*l.Fragmentation)
	if l.Free < l.Ideal {
		return p.warning(text)
	}
	return safe(text)
}
