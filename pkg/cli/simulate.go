// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/sim"
)

const (
	// syntheticPrefix marks a --trace that is generated, not read.
	syntheticPrefix = "synthetic:"
	// maxTrace bounds a nodes file or trace: 5000 NodeGPUTopologies of 8 GPUs are
	// about 60 MB.
	maxTrace = 1 << 30
)

// simulation has the flags of simulate.
type simulation struct {
	nodes, trace string
	pods         int
	policies     []string
	load, warmUp float64
	seed         uint64
	podPolicy    string
}

func newSimulate() *cobra.Command {
	var (
		s   simulation
		out outputFlag
	)
	cmd := &cobra.Command{
		Use:   "simulate --nodes FILE --trace FILE",
		Short: "Replay a trace of GPU jobs on a cluster and measure the placements",
		Long: `Replay a trace of GPU jobs on a simulated cluster, and measure the result of a
policy: links, waiting, fragmentation. The policy "ours" is the choice
of the nvtopo scheduler. The others choose the node by the number of its free GPUs
and then the GPUs on it; their names are NODE+PICK with
  NODE  spread (most free GPUs), binpack (fewest that suffice), fgd (least increase
        of the fragmentation the trace's mix of sizes expects)
  PICK  random, lowest (index), hami, best-effort (NVIDIA's device plugin), prim,
        exact (the objective of this project)

Nodes are lines "MACHINE COUNT" of the built-in catalogue (see NVTOPO machines; # is
a comment) or a NodeGPUTopologyList in YAML or JSON. A trace is CSV with the header
arrival_s,duration_s,gpus,pods (pods is the size of the gang, 1 by default), a pod
list of Alibaba's openb trace, or synthetic:NAME with NAME one of
` + strings.Join(sim.SyntheticNames(), ", ") + `, drawn from the seed. "-" is standard input.

The pods after the first jobs (--warm-up) are measured. docs/cli.md describes the
answer's fields.`,
		Example: `  NVTOPO simulate --nodes nodes.txt --trace jobs.csv --policy ours --policy binpack+exact
  echo dgx1-v100 64 | NVTOPO simulate --nodes - --trace synthetic:multigpu50 --load 0.95 -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			results, err := s.run(cmd)
			if err != nil {
				return err
			}
			var answer any = results
			if len(results) == 1 {
				answer = results[0]
			}
			return out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error { return writeResults(w, results) })
		},
	}
	out.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&s.nodes, "nodes", "", `file with the nodes of the cluster (required); "-" is standard input`)
	f.StringVar(&s.trace, "trace", "", `file with the jobs, or synthetic:NAME (required); "-" is standard input`)
	f.StringArrayVar(&s.policies, "policy", []string{sim.Ours}, "policy to measure: ours or NODE+PICK; may be given several times")
	f.Float64Var(&s.load, "load", 0.85, "rescale arrivals so that the jobs ask for this share of the cluster's GPU time; 0 leaves them as they are")
	f.Uint64Var(&s.seed, "seed", 1, "seed of what is drawn: a synthetic trace, times a trace lacks, random picks")
	f.IntVar(&s.pods, "pods", 20_000, "with synthetic:NAME: pods to draw")
	f.Float64Var(&s.warmUp, "warm-up", sim.DefaultWarmUp, "share of the jobs that are replayed first and not measured")
	f.StringVar(&s.podPolicy, "pod-policy", nvtopo.PolicyBestEffort.String(),
		"topology policy of the pods that fit one NUMA node, and of all kubelets: best-effort or single-numa-node")
	return cmd
}

// run measures the policies one after another on the same jobs.
func (s *simulation) run(cmd *cobra.Command) ([]*sim.Result, error) {
	config, err := s.config(cmd)
	if err != nil {
		return nil, err
	}
	var out []*sim.Result
	for _, p := range s.policies {
		config.Policy = p
		r, err := sim.Run(cmd.Context(), *config)
		if err != nil {
			return nil, inputf("%w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *simulation) config(cmd *cobra.Command) (*sim.Config, error) {
	c := &sim.Config{Load: s.load, Seed: s.seed, WarmUp: s.warmUp}
	if err := s.check(cmd); err != nil {
		return nil, err
	}
	var err error
	if c.PodPolicy, err = nvtopo.ParsePolicy(s.podPolicy); err != nil {
		return nil, usagef("--pod-policy: %w", err)
	}
	if c.PodPolicy != nvtopo.PolicyBestEffort && c.PodPolicy != nvtopo.PolicySingleNUMANode {
		return nil, usagef("--pod-policy %s: want best-effort or single-numa-node", s.podPolicy)
	}
	nodes, err := readLarge(cmd, s.nodes)
	if err != nil {
		return nil, err
	}
	if c.Nodes, err = sim.ReadNodes(nodes); err != nil {
		return nil, inputf("%s: %w", shownName(s.nodes), err)
	}
	if name, ok := strings.CutPrefix(s.trace, syntheticPrefix); ok {
		if c.Jobs, err = sim.Synthetic(name, s.pods, s.seed); err != nil {
			return nil, usagef("--trace %s: %w", s.trace, err)
		}
		return c, nil
	}
	trace, err := readLarge(cmd, s.trace)
	if err != nil {
		return nil, err
	}
	if c.Jobs, err = sim.ReadTrace(strings.NewReader(string(trace)), s.seed); err != nil {
		return nil, inputf("%s: %w", shownName(s.trace), err)
	}
	return c, nil
}

// check refuses flags that are wrong for any content of the files.
func (s *simulation) check(cmd *cobra.Command) error {
	known := sim.Policies()
	switch {
	case s.nodes == "":
		return usagef("--nodes is needed: the file with the nodes of the cluster")
	case s.trace == "":
		return usagef("--trace is needed: the file with the jobs, or synthetic:NAME")
	case s.nodes == stdin && s.trace == stdin:
		return usagef("--nodes and --trace cannot both be standard input")
	case cmd.Flags().Changed("pods") && !strings.HasPrefix(s.trace, syntheticPrefix):
		return usagef("--pods goes with --trace %sNAME only", syntheticPrefix)
	case math.IsNaN(s.load) || math.IsInf(s.load, 0) || s.load < 0:
		return usagef("--load %v: want 0 or more", s.load)
	case math.IsNaN(s.warmUp) || s.warmUp < 0 || s.warmUp >= 1:
		return usagef("--warm-up %v: want a share from 0 to below 1", s.warmUp)
	}
	for _, p := range s.policies {
		if !slices.Contains(known, p) {
			return usagef("--policy %q: want ours, or one of spread, binpack and fgd with one of random, lowest, hami, best-effort, prim and exact, as in binpack+exact", p)
		}
	}
	return nil
}

func readLarge(cmd *cobra.Command, file string) ([]byte, error) {
	r := cmd.InOrStdin()
	if file != stdin {
		f, err := os.Open(file)
		if err != nil {
			return nil, inputf("%w", err)
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxTrace+1))
	if err == nil && len(data) > maxTrace {
		err = errors.New("larger than 1 GiB")
	}
	if err != nil {
		return nil, inputf("%s: %w", shownName(file), err)
	}
	return data, nil
}

func writeResults(w io.Writer, results []*sim.Result) error {
	r := results[0]
	fmt.Fprintf(w, "%d nodes, %d GPUs; %d pods measured, %d of them with several GPUs", r.Nodes, r.GPUs, r.Pods, r.MultiGPUPods)
	fmt.Fprintln(w)
	if r.Unplaceable > 0 {
		fmt.Fprintf(w, "left out, because they do not fit even in the empty cluster: %d pods\n", r.Unplaceable)
	}
	for _, r := range results {
		if r.Unfinished > 0 {
			fmt.Fprintf(w, "%s never found room for %d pods\n", r.Policy, r.Unfinished)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "POLICY\tBEST CLASS %\tRING %\tREGRET GB/S\tONE NUMA %\tREJECTED\tALLOCATED %\tFRAGMENTED %\tSTRANDED %\tWAIT S\tP99\tMULTI\t8 GPUS\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.3f\t%.1f\t%d\t%.2f\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t\n",
			r.Policy, 100*r.BestClassShare, 100*r.MeanRingRatio, r.MeanRegretGBps, 100*r.SingleNUMAShare, r.KubeletRejections,
			100*r.AllocationRatio, 100*r.FGDFragmentation, 100*r.StrandedForFour, r.MeanWaitS, r.P99WaitS, r.MeanWaitMultiS, r.MeanWait8S)
	}
	return t.Flush()
}
