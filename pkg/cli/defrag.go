// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

// defragmenting is the command defrag with its flags.
type defragmenting struct {
	out      viewOutput
	source   clusterSource
	gpus     int
	maxMoves int
}

func newDefrag() *cobra.Command {
	var o defragmenting
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Advise which pods to move so that more linked groups of GPUs are free",
		Long: `Advise which pods to move so that more linked groups are free: the fewest moves that free
the most of them. It changes nothing. A linked group is a set of free GPUs whose ring is
as fast as the best of as many GPUs on the same machine when that is empty: by any link,
SYS included, unless --min-link says which.

A move is an eviction: the pod ends, its controller makes it again, and the scheduler
places it. TO is where it has room and costs the fewest groups, with the GPUs that the
scheduler would choose there. GAIN is what each of them frees once those before it are made.

The commands that make the moves stand below them, and may be pasted as a whole: cordon
the nodes that pods leave, delete the pods, wait until their replacements have nodes,
uncordon the nodes. kubectl delete waits for the end of the pod, and kubectl wait for 5
minutes at most: a replacement that stays pending has no other place, and its node is
open again then. A pod holds its GPUs until it has ended, and its replacement is placed
before that: often on the same node, if that is not cordoned. Look again at the end, or
after each move with --max-moves 1. Nothing of a cordoned node counts; the answer says
what it has once it is uncordoned.

It moves no pod of a gang, of a DaemonSet or of no controller, none with the annotation
nvtopo.dev/movable: "false", none whose place depends on other pods, and none that the
scheduler did not choose the GPUs of. All moves together keep every PodDisruptionBudget.
Every pod fits where it goes by GPUs, CPUs, memory, labels and taints, on GPUs of the same
model, and its ring is no slower than before. Volumes and host ports it does not look at.

In a small cluster all sequences of moves are tried, and the answer says that it is
proven. In a large one it takes, node by node, the moves that gain the most.

` + saved,
		Example: `  NVTOPO defrag
  NVTOPO defrag -n 8 --min-link NVLINK    # whole machines of 8 GPUs with NVLink
  NVTOPO defrag -n 8 --max-moves 4
  NVTOPO defrag --from cluster.yaml -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.bind(cmd)
	o.source.bind(cmd)
	o.source.bindMinLink(cmd)
	cmd.Flags().IntVarP(&o.gpus, "gpus", "n", 0, "size of the groups, 2 or more (default: 8, 4 and 2, each by itself)")
	cmd.Flags().IntVar(&o.maxMoves, "max-moves", clusterview.DefaultMaxMoves, "most pods to move")
	return cmd
}

func (o *defragmenting) run(cmd *cobra.Command) error {
	if err := o.out.check(); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("gpus") && (o.gpus < 2 || o.gpus > nvtopo.MaxGPUs):
		return usagef("--gpus %d: want a number from 2 to %d", o.gpus, nvtopo.MaxGPUs)
	case o.maxMoves < 1:
		return usagef("--max-moves %d: want 1 or more", o.maxMoves)
	}
	read, err := o.source.reader(cmd)
	if err != nil {
		return err
	}
	v, err := read(cmd.Context())
	if err != nil {
		return err
	}
	advice := v.AdviseAll(o.maxMoves)
	if o.gpus > 0 {
		advice = []clusterview.Advice{v.Advise(clusterview.AdviceOptions{GPUs: o.gpus, MaxMoves: o.maxMoves})}
	}
	return o.out.write(cmd.OutOrStdout(), advice, func(w io.Writer) error { return writeAdvice(w, advice) })
}

// maxStaying is the number of pods listed with a reason to stay.
const maxStaying = 4

func writeAdvice(w io.Writer, advice []clusterview.Advice) error {
	for i := range advice {
		a := &advice[i]
		printf(w, "Groups of %d by %s: %s\n", a.GPUs, linkText(a.MinLink), outcome(a))
		if len(a.Moves) == 0 {
			continue
		}
		t := &table{}
		t.row("", "POD", "FROM", "GPUS", "TO", "GPUS", "GAIN")
		for i := range a.Moves {
			m := &a.Moves[i]
			t.row(strconv.Itoa(i+1), m.Namespace+"/"+m.Name, m.From, join(m.FromGPUs), m.To, join(m.ToGPUs), strconv.Itoa(m.Gain))
		}
		if err := t.write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
		for _, command := range a.Commands {
			printf(w, "   %s\n", command)
		}
		fmt.Fprintln(w)
	}
	t := &table{}
	for _, c := range advice[0].Cordoned {
		then := ""
		if c.FreeGPUs > 0 {
			then = fmt.Sprintf("; then %s more are free", count(c.FreeGPUs, "GPU"))
		}
		t.row("Cordoned", c.Node, fmt.Sprintf("nothing of it counts and its pods stay, until: kubectl uncordon %s%s", c.Node, then))
	}
	for _, why := range slices.Sorted(maps.Keys(advice[0].Staying)) { // it is the same for every size
		pods := advice[0].Staying[why]
		t.row("Must stay", count(len(pods), "pod"), why+": "+eviction.First(pods, maxStaying))
	}
	return t.write(w)
}

// linkText describes the least link.
func linkText(minLink string) string {
	if minLink == "" {
		return "any link"
	}
	return minLink + " or better"
}

// outcome describes the result of the moves.
func outcome(a *clusterview.Advice) string {
	text := fmt.Sprintf("%d free, ", a.Before)
	switch {
	case a.After > a.Before:
		text += fmt.Sprintf("%d after %s, on %s", a.After, count(len(a.Moves), "move"), freedOn(a))
	case a.Before >= a.Ideal:
		return text + "and so many free GPUs cannot be more" + uncordoned(a)
	default:
		text += "no moves found that free more"
	}
	if a.After < a.Ideal {
		text += fmt.Sprintf("; so many free GPUs could be %d", a.Ideal)
	}
	if a.Proven {
		text += " (proven)"
	}
	return text + uncordoned(a)
}

// freedOn names the nodes that have more groups after the moves.
func freedOn(a *clusterview.Advice) string {
	var nodes []string
	for _, f := range a.Freed {
		name := f.Node
		if f.Groups > 1 {
			name += fmt.Sprintf(" (%d)", f.Groups)
		}
		nodes = append(nodes, name)
	}
	return strings.Join(nodes, ", ")
}

// uncordoned describes the groups that cordoned nodes would add; empty if none.
func uncordoned(a *clusterview.Advice) string {
	var nodes []string
	groups := 0
	for _, c := range a.Cordoned {
		if c.Groups > 0 {
			nodes = append(nodes, c.Node)
			groups += c.Groups
		}
	}
	if groups == 0 {
		return ""
	}
	return fmt.Sprintf("; %d more once uncordoned: %s", groups, strings.Join(nodes, ", "))
}
