// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// collectives are the operations of the cost model, in the order of the output.
var collectives = []string{"all-reduce", "all-gather", "reduce-scatter"}

type estimateOptions struct {
	src        source
	out        outputFlag
	gpus       string
	count      int
	size       string
	algorithm  string
	collective string
	latency    float64
	bandwidth  string
	binary     bool
}

// estimated is the output of estimate.
type estimated struct {
	GPUs          []int          `json:"gpus,omitempty"`
	Count         int            `json:"count"`
	SizeBytes     float64        `json:"sizeBytes"`
	BandwidthGBps float64        `json:"bandwidthGBps"`
	LatencyMicros float64        `json:"latencyMicroseconds"`
	Estimates     []estimateLine `json:"estimates"`
}

type estimateLine struct {
	Collective   string  `json:"collective"`
	Algorithm    string  `json:"algorithm"`
	Milliseconds float64 `json:"milliseconds"`
}

func newEstimate() *cobra.Command {
	var o estimateOptions
	cmd := &cobra.Command{
		Use:   "estimate",
		Short: "Estimate how long collective operations take on a set of GPUs",
		Long: `Estimate how long all-reduce, all-gather and reduce-scatter take on a set of GPUs,
by the algorithms ring, tree and recursive-halving. Names with underscores
(all_reduce) are read too.

A message of b bytes takes latency + b/bandwidth. Bandwidth and latency are those
of the weakest link of the set's best ring, unless --bandwidth or --latency says
otherwise. With -n and --bandwidth no machine is needed.

Sizes are SI (1 GB = 1000 MB), in upper or lower case; MiB and the like are exact. With --binary-units
1 GB = 1024 MB, where the GB is that of the bandwidths.`,
		Example: `  NVTOPO estimate --machine dgx-h100 --gpus 0-3 --size 1GB
  NVTOPO estimate -f topo.txt --gpus 0,1 --size 64MiB --algorithm ring
  NVTOPO estimate -n 8 --bandwidth 600 --latency 0 --size 100MB --binary-units`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.src.bind(cmd)
	o.out.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.gpus, "gpus", "", "indices of the GPUs, for example 0,2-4 (default: all healthy ones)")
	f.IntVarP(&o.count, "count", "n", 0, "without a machine: how many GPUs")
	f.StringVar(&o.size, "size", "1GB", "size of each GPU's buffer, for all-gather of the result")
	f.StringVar(&o.algorithm, "algorithm", "all", "ring, tree, recursive-halving or all")
	f.StringVar(&o.collective, "collective", "all", "all-reduce, all-gather, reduce-scatter or all")
	f.Float64Var(&o.latency, "latency", 0, "latency of a message in µs (default: that of the weakest link)")
	f.StringVar(&o.bandwidth, "bandwidth", "", "bandwidth in GB/s, or with a unit: 100GB/s, 800Gb/s (default: that of the weakest link)")
	f.BoolVar(&o.binary, "binary-units", false, "in --size count 1 GB as 1024 MB")
	return cmd
}

func (o *estimateOptions) run(cmd *cobra.Command) error {
	if err := o.out.check(); err != nil {
		return err
	}
	size, err := parseSize(o.size, o.binary)
	if err != nil {
		return usagef("--size: %w", err)
	}
	algorithms, chosen, err := o.selection()
	if err != nil {
		return err
	}
	answer, model, err := o.model(cmd)
	if err != nil {
		return err
	}
	answer.SizeBytes, answer.BandwidthGBps, answer.LatencyMicros = size, nvtopo.GBps(model.Bandwidth), float64(model.Latency)/1e3
	for _, c := range chosen {
		for _, a := range algorithms {
			cost := map[string]func(nvtopo.Algorithm, int, float64) float64{
				"all-reduce": model.AllReduce, "all-gather": model.AllGather, "reduce-scatter": model.ReduceScatter,
			}[c]
			answer.Estimates = append(answer.Estimates, estimateLine{c, a.String(), 1e3 * cost(a, answer.Count, size)})
		}
	}
	return o.out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error { return writeEstimates(w, answer) })
}

// selection returns the algorithms and collectives of the flags.
func (o *estimateOptions) selection() ([]nvtopo.Algorithm, []string, error) {
	algorithms := []nvtopo.Algorithm{nvtopo.AlgorithmRing, nvtopo.AlgorithmTree, nvtopo.AlgorithmRecursiveHalving}
	if o.algorithm != "all" {
		a, err := nvtopo.ParseAlgorithm(o.algorithm)
		if err != nil {
			return nil, nil, usagef("--algorithm: %w", err)
		}
		algorithms = []nvtopo.Algorithm{a}
	}
	if o.collective == "all" {
		return algorithms, collectives, nil
	}
	collective := strings.ReplaceAll(o.collective, "_", "-")
	if !slices.Contains(collectives, collective) {
		return nil, nil, usagef("--collective %q: want %s or all", o.collective, strings.Join(collectives, ", "))
	}
	return algorithms, []string{collective}, nil
}

// model returns the set of GPUs and the cost of a message between them.
func (o *estimateOptions) model(cmd *cobra.Command) (*estimated, nvtopo.CostModel, error) {
	flags := cmd.Flags()
	answer := &estimated{Count: o.count}
	var m nvtopo.CostModel
	switch {
	case o.src.given() && flags.Changed("count"):
		return nil, m, usagef("-n cannot be used with a machine; name the machine's GPUs with --gpus")
	case o.src.given():
		in, set, err := o.set(cmd)
		if err != nil {
			return nil, m, err
		}
		tables := nvtopo.NewTables(in.graph, nvtopo.DefaultWeights())
		m = nvtopo.CostModel{Bandwidth: tables.Ring(set), Latency: tables.Latency(set)}
		answer.GPUs, answer.Count = in.members(set), set.Len()
	case flags.Changed("gpus"):
		return nil, m, usagef("--gpus needs a machine: -f, --machine or --node")
	case o.count < 1 || !flags.Changed("bandwidth"):
		return nil, m, usagef("a machine (-f, --machine or --node) is needed, or -n and --bandwidth")
	}
	err := o.override(cmd, &m)
	return answer, m, err
}

// set returns the set of GPUs of the flags.
func (o *estimateOptions) set(cmd *cobra.Command) (*input, nvtopo.Mask, error) {
	in, err := o.src.load(cmd)
	if err != nil {
		return nil, 0, err
	}
	if cmd.Flags().Changed("gpus") {
		set, err := in.parseGPUs("--gpus", o.gpus)
		return in, set, err
	}
	set := in.graph.Healthy()
	if sound := set &^ in.graph.Degraded(); sound != 0 {
		set = sound
	}
	if set == 0 {
		return nil, 0, noAnswerf("no GPU is healthy")
	}
	return in, set, nil
}

// override replaces values of the graph by values of the flags.
func (o *estimateOptions) override(cmd *cobra.Command, m *nvtopo.CostModel) error {
	if cmd.Flags().Changed("bandwidth") {
		kBps, err := parseBandwidth("--bandwidth", o.bandwidth)
		if err != nil {
			return err
		}
		m.Bandwidth = kBps
	}
	if cmd.Flags().Changed("latency") {
		if !(o.latency >= 0 && o.latency <= 1e6) {
			return usagef("--latency %v: want µs, 0 or more and at most a second", o.latency)
		}
		m.Latency = int64(math.Round(o.latency * 1e3))
	}
	return nil
}

func writeEstimates(w io.Writer, a *estimated) error {
	of := fmt.Sprintf("%d GPUs", a.Count)
	if len(a.GPUs) > 0 {
		of = "GPUs " + join(a.GPUs)
	}
	printf(w, "%s, %v GB/s, latency %v µs, %.0f bytes\n\n", of, a.BandwidthGBps, a.LatencyMicros, a.SizeBytes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COLLECTIVE\tALGORITHM\tMILLISECONDS")
	for _, e := range a.Estimates {
		printf(t, "%s\t%s\t%.9f\n", e.Collective, e.Algorithm, e.Milliseconds)
	}
	return t.Flush()
}
