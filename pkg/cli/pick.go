// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// residualPerGBps is the library's unit of residual capacity (10^-6 kB/s) in one GB/s.
const residualPerGBps = 1e12

// picked is the output of pick; its JSON form is part of the command's contract.
type picked struct {
	GPUs              []int   `json:"gpus"` // ascending indices
	Ring              []int   `json:"ring"` // indices in ring order
	RingBandwidthGBps float64 `json:"ringBandwidthGBps"`
	LinkClass         string  `json:"linkClass"`
	NUMANodes         []int   `json:"numaNodes"`
	Residual          float64 `json:"residual"` // GB/s
	PairSumGBps       float64 `json:"pairSumGBps"`
}

type pickOptions struct {
	src          source
	out          outputFlag
	count        int
	free         string
	policy       string
	minLink      string
	minBandwidth string
	mixed        bool
}

func newPick() *cobra.Command {
	var o pickOptions
	cmd := &cobra.Command{
		Use:   "pick -n COUNT",
		Short: "Choose the best GPUs for a job",
		Long: `Choose the best COUNT GPUs among those that are free, by the objective of the
scheduler: first the ring with the fastest weakest link; then few NUMA nodes, close
to each other; then the set that leaves the most valuable GPUs free; then short PCIe
paths.

The free GPUs are those of --free. Without it they are all healthy GPUs, except those
that pods hold: with --node as NVTOPO top counts them, with -f those of the
NodeGPUTopology's status. Degraded GPUs are only used alone.

With -o json the answer is one object:
  gpus               indices, ascending
  ring               the same in ring order
  ringBandwidthGBps  of the ring's weakest link; 0 for one GPU
  linkClass          of that link; "" for one GPU
  numaNodes          of the GPUs; -1 is an unknown one
  residual           worth of what stays free, in GB/s
  pairSumGBps        sum of the bandwidths of all pairs

If no set satisfies the request the exit code is 1 and the message says which
requirement could not be met.`,
		Example: `  NVTOPO pick -n 4 --machine dgx1-v100
  NVTOPO pick -n 4 --machine dgx1-v100 --free 0,2,3,4,5,7 -o json
  NVTOPO pick -n 2 -f topo.txt --policy single-numa-node --min-link NVLINK
  NVTOPO pick -n 8 --node gpu-node-7 --min-bandwidth 300`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.src.bind(cmd)
	o.out.bind(cmd)
	f := cmd.Flags()
	f.IntVarP(&o.count, "count", "n", 0, "how many GPUs (required)")
	f.StringVar(&o.free, "free", "", "indices of the free GPUs, for example 0,2-4")
	f.StringVar(&o.policy, "policy", nvtopo.PolicyBestEffort.String(), "none, best-effort, restricted or single-numa-node")
	f.StringVar(&o.minLink, "min-link", "", "worst link class accepted between any two of the GPUs, for example NVLINK, NV4 or PHB")
	f.StringVar(&o.minBandwidth, "min-bandwidth", "", "least bandwidth of the ring's weakest link in GB/s, or with a unit: 100GB/s, 800Gb/s")
	f.BoolVar(&o.mixed, "allow-mixed-models", false, "accept GPUs of different models in one set")
	return cmd
}

func (o *pickOptions) run(cmd *cobra.Command) error {
	if err := o.out.check(); err != nil {
		return err
	}
	if o.count < 1 {
		return usagef("-n is needed: the number of GPUs, 1 or more")
	}
	con, err := o.constraint(cmd.Flags().Changed("min-bandwidth"))
	if err != nil {
		return err
	}
	in, err := o.src.load(cmd)
	if err != nil {
		return err
	}
	free, err := in.usable("--free", o.free, cmd.Flags().Changed("free"), o.count)
	if err != nil {
		return err
	}
	tables, choice, err := o.choose(in, free, con)
	if err != nil {
		return err
	}
	answer := picked{
		GPUs: in.members(choice.Set), Ring: in.indices(choice.Ring),
		RingBandwidthGBps: nvtopo.GBps(choice.Bandwidth), LinkClass: choice.Class.String(), NUMANodes: choice.NUMANodes,
		Residual: float64(choice.Residual) / residualPerGBps, PairSumGBps: nvtopo.GBps(choice.PairSum),
	}
	return o.out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		return o.writeText(w, &answer, nvtopo.GBps(tables.Best(o.count)))
	})
}

// choose takes the best of the free GPUs.
func (o *pickOptions) choose(in *input, free nvtopo.Mask, con nvtopo.Constraint) (*nvtopo.Tables, nvtopo.Choice, error) {
	tables := nvtopo.NewTables(in.graph, nvtopo.DefaultWeights())
	allowed := free
	if alone := free & in.graph.Degraded(); alone != 0 {
		// One GPU only: see PickUsable. The other GPUs keep their value.
		allowed = alone & -alone
		free = free&^alone | allowed
	}
	choice, short := tables.Choose(free, allowed, o.count, con)
	if short != nvtopo.ShortNone {
		return nil, choice, o.shortage(in, tables, free, con, short)
	}
	return tables, choice, nil
}

func (o *pickOptions) constraint(minBandwidth bool) (con nvtopo.Constraint, err error) {
	con.AllowMixedModels = o.mixed
	if con.Policy, err = nvtopo.ParsePolicy(o.policy); err != nil {
		return con, usagef("--policy: %w", err)
	}
	if o.minLink != "" {
		if con.MinLink, err = nvtopo.ParseClass(o.minLink); err != nil {
			return con, usagef("--min-link: %w", err)
		}
	}
	if minBandwidth {
		if con.MinBandwidth, err = parseBandwidth("--min-bandwidth", o.minBandwidth); err != nil {
			return con, err
		}
	}
	return con, nil
}

func (o *pickOptions) writeText(w io.Writer, a *picked, best float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printf(t, "GPUs\t%s\n", join(a.GPUs))
	if len(a.Ring) > 1 {
		printf(t, "Ring\t%s\n", ringText(a.Ring))
		printf(t, "Weakest link\t%s, %v GB/s\n", a.LinkClass, a.RingBandwidthGBps)
		printf(t, "Best of %d here\t%v GB/s, when all GPUs are free\n", len(a.GPUs), best)
		printf(t, "Sum of pairs\t%v GB/s\n", a.PairSumGBps)
	}
	printf(t, "NUMA nodes\t%s\n", joinNUMA(a.NUMANodes))
	printf(t, "Residual\t%.3f GB/s\n", a.Residual)
	return t.Flush()
}

// ringText writes a ring with its first GPU repeated at the end; two GPUs have one link.
func ringText(ring []int) string {
	text := strings.ReplaceAll(join(ring), ",", " - ")
	if len(ring) > 2 {
		text += fmt.Sprintf(" - %d", ring[0])
	}
	return text
}

// shortage returns an error with the requirement that cannot be met, and by how much.
func (o *pickOptions) shortage(in *input, t *nvtopo.Tables, free nvtopo.Mask, con nvtopo.Constraint, short nvtopo.Shortfall) error {
	list := in.list(free)
	switch short {
	case nvtopo.ShortFree:
		return noAnswerf("%d GPUs are asked for, %d are free: %s", o.count, free.Len(), list)
	case nvtopo.ShortModel:
		return noAnswerf("no %d of the free GPUs (%s) are of one model; --allow-mixed-models accepts several", o.count, list)
	case nvtopo.ShortNUMA:
		most := 1
		if con.Policy == nvtopo.PolicyRestricted {
			most = t.MinNUMA(o.count)
		}
		if t.Graph().MightShareNUMA(free, o.count, con.Policy) {
			return noAnswerf("the NUMA nodes of GPUs %s are not known, and --policy %s demands %d GPUs on at most %d of them: with captured text --numactl tells them",
				in.list(free&t.Graph().NUMAUnknown()), con.Policy, o.count, most)
		}
		return noAnswerf("no %d of the free GPUs (%s) are on at most %d NUMA nodes, which --policy %s demands", o.count, list, most, con.Policy)
	case nvtopo.ShortLink:
		return noAnswerf("no %d of the free GPUs (%s) are all joined by %s or better, which --min-link demands", o.count, list, con.MinLink)
	case nvtopo.ShortBandwidth:
		relaxed := con
		relaxed.MinBandwidth = 0
		best, _ := t.Choose(free, free, o.count, relaxed)
		return noAnswerf("the best ring of %d of the free GPUs (%s) has %s GB/s, --min-bandwidth demands %s",
			o.count, list, nvtopo.FormatGBps(best.Bandwidth), nvtopo.FormatGBps(con.MinBandwidth))
	case nvtopo.ShortNone:
	}
	return noAnswerf("no %d of the free GPUs (%s): %s", o.count, list, short)
}
