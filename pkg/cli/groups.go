// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// group is one group in the output of groups.
type group struct {
	GPUs              []int   `json:"gpus"`
	Ring              []int   `json:"ring"`
	RingBandwidthGBps float64 `json:"ringBandwidthGBps"`
	LinkClass         string  `json:"linkClass"`
	NUMANodes         []int   `json:"numaNodes"`
}

type grouping struct {
	Groups    []group `json:"groups"`
	Unused    []int   `json:"unused"`
	WorstGBps float64 `json:"worstGBps"` // slowest ring of the groups
	SumGBps   float64 `json:"sumGBps"`   // over the rings of the groups
}

func newGroups() *cobra.Command {
	var (
		src  source
		out  outputFlag
		size int
		free string
	)
	cmd := &cobra.Command{
		Use:   "groups -g SIZE",
		Short: "Divide the GPUs into groups for data parallelism",
		Long: `Divide the free GPUs into as many groups of SIZE as possible, so that the slowest of
the groups' rings is as fast as possible, and then the sum of the rings. Of equal rings
the groups are on as few NUMA nodes as possible.

The free GPUs are those of --free. Without it they are all healthy GPUs, except those
that pods hold: with --node as NVTOPO top counts them, with -f those of the
NodeGPUTopology's status. Degraded GPUs are only used alone.`,
		Example: `  NVTOPO groups -g 2 --machine dgx1-v100
  NVTOPO groups -g 4 -f topo.txt --free 0-5 -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if size < 1 {
				return usagef("-g is needed: the number of GPUs of a group, 1 or more")
			}
			in, err := src.load(cmd)
			if err != nil {
				return err
			}
			set, err := in.usable("--free", free, cmd.Flags().Changed("free"), size)
			if err != nil {
				return err
			}
			answer := divide(in, set, size)
			if len(answer.Groups) == 0 {
				return noAnswerf("groups of %d GPUs are asked for, %d are free: %s", size, set.Len(), in.list(set))
			}
			return out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error { return writeGroups(w, answer) })
		},
	}
	src.bind(cmd)
	out.bind(cmd)
	cmd.Flags().IntVarP(&size, "size", "g", 0, "GPUs in a group (required)")
	cmd.Flags().StringVar(&free, "free", "", "indices of the free GPUs, for example 0,2-4")
	return cmd
}

func divide(in *input, free nvtopo.Mask, size int) *grouping {
	tables := nvtopo.NewTables(in.graph, nvtopo.DefaultWeights())
	out := &grouping{Groups: []group{}}
	var worst, sum int64
	unused := free
	for i, set := range tables.Groups(free, size) {
		ring := tables.Ring(set)
		if i == 0 || ring < worst {
			worst = ring
		}
		sum += ring
		unused &^= set
		out.Groups = append(out.Groups, group{
			GPUs: in.members(set), Ring: in.indices(tables.RingOrder(set)), RingBandwidthGBps: nvtopo.GBps(ring),
			LinkClass: tables.RingClass(set).String(), NUMANodes: in.graph.NUMAOf(set),
		})
	}
	out.Unused, out.WorstGBps, out.SumGBps = in.members(unused), nvtopo.GBps(worst), nvtopo.GBps(sum)
	return out
}

func writeGroups(w io.Writer, a *grouping) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GPUS\tRING\tWEAKEST LINK\tGB/S\tNUMA NODES")
	for i := range a.Groups {
		g := &a.Groups[i]
		if len(g.GPUs) == 1 {
			printf(t, "%s\t-\t-\t-\t%s\n", join(g.GPUs), joinNUMA(g.NUMANodes))
			continue
		}
		printf(t, "%s\t%s\t%s\t%v\t%s\n", join(g.GPUs), ringText(g.Ring), g.LinkClass, g.RingBandwidthGBps, joinNUMA(g.NUMANodes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	printf(w, "Unused: %s\n", join(a.Unused))
	return nil
}
