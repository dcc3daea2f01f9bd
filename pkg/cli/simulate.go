// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
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
	fabric       string
	gangPolicies []string
	patience     time.Duration
	drainAfter   time.Duration
	pods         int
	policies     []string
	load, warmUp float64
	seed         uint64
	weights      nodeindex.Weights
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

With --fabric, racks and switches count. FABRIC is CSV with the header node and the
levels, outermost first, and NODES is CSV with the header node,machine. --gang-policy
takes the place of --policy and is how jobs of several pods are placed: "ours" is the
planner of NVTOPO fabric place, with other pods sent to where least is whole; kueue,
koordinator, volcano and first-fit count the free GPUs of nodes, as these systems do,
send other pods to the node with the fewest, and take the GPUs of lowest index.

The pods after the first jobs (--warm-up) are measured. docs/cli.md describes the
answer's fields.`,
		Example: `  NVTOPO simulate --nodes nodes.txt --trace jobs.csv --policy ours --policy binpack+exact
  echo dgx1-v100 64 | NVTOPO simulate --nodes - --trace synthetic:multigpu50 --load 0.95 -o json
  NVTOPO simulate --fabric fabric.csv --nodes nodes.csv --trace jobs.csv --gang-policy ours --placement-patience 300s`,
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
	f.StringVar(&s.fabric, "fabric", "", "CSV with the domains of each node; then --nodes is CSV with the machine of each")
	f.StringArrayVar(&s.gangPolicies, "gang-policy", []string{sim.Ours}, "with --fabric: "+strings.Join(sim.GangPolicies(), ", ")+"; may be given several times")
	f.DurationVar(&s.patience, "placement-patience", 0, "with --gang-policy ours: how long a gang waits for a level as good as in the empty cluster")
	f.DurationVar(&s.drainAfter, "drain-after", 0, "with --gang-policy ours: after how long without room nodes are closed to younger jobs for a gang; 0 is never")
	s.weights = nodeindex.DefaultWeights()
	f.Float64Var(&s.weights.Bandwidth, "bandwidth-weight", s.weights.Bandwidth, "with policy ours: share of the ring's bandwidth in a node's score, 0 to 1")
	f.Float64Var(&s.weights.Latency, "latency-weight", s.weights.Latency, "with policy ours: share of the ring's latency, 0 to 1")
	f.Float64Var(&s.weights.Fragmentation, "fragmentation-weight", s.weights.Fragmentation, "with policy ours: share of what a choice costs those who come later, 0 to 1")
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
	policies := s.policies
	if s.fabric != "" {
		policies = s.gangPolicies
	}
	var out []*sim.Result
	for _, p := range policies {
		config.Policy, config.GangPolicy, config.PatienceS = p, p, 0
		config.DrainAfterS = 0
		if p == sim.Ours {
			config.PatienceS, config.DrainAfterS = s.patience.Seconds(), s.drainAfter.Seconds()
		}
		r, err := sim.Run(cmd.Context(), *config)
		if err != nil {
			return nil, inputf("%w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *simulation) config(cmd *cobra.Command) (*sim.Config, error) {
	c := &sim.Config{Load: s.load, Seed: s.seed, WarmUp: s.warmUp, Weights: &s.weights}
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
	if err := s.cluster(cmd, c); err != nil {
		return nil, err
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

// cluster reads the nodes, and the fabric between them.
func (s *simulation) cluster(cmd *cobra.Command, c *sim.Config) error {
	if s.fabric != "" {
		p := fabricPlacement{fabric: s.fabric, nodes: s.nodes}
		on, err := p.load(cmd)
		if err != nil {
			return err
		}
		if c.Fabric, c.Nodes, err = on.equipped(); err != nil {
			return inputf("%s: %w", shownName(s.fabric), err)
		}
		return nil
	}
	nodes, err := readLarge(cmd, s.nodes)
	if err != nil {
		return err
	}
	if c.Nodes, err = sim.ReadNodes(nodes); err != nil {
		return inputf("%s: %w", shownName(s.nodes), err)
	}
	return nil
}

// checkGangs refuses flags that do not go together with and without a fabric.
func (s *simulation) checkGangs(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if s.fabric == "" {
		for _, flag := range []string{"gang-policy", "placement-patience", "drain-after"} {
			if changed(flag) {
				return usagef("--%s goes with --fabric only", flag)
			}
		}
		return nil
	}
	switch {
	case changed("policy"):
		return usagef("--policy goes without --fabric only: give --gang-policy")
	case s.fabric == stdin && (s.nodes == stdin || s.trace == stdin):
		return usagef("only one of --fabric, --nodes and --trace can be standard input")
	}
	ours := slices.Contains(s.gangPolicies, sim.Ours)
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"placement-patience", s.patience}, {"drain-after", s.drainAfter}} {
		switch {
		case f.value < 0:
			return usagef("--%s %v: want 0 or more", f.name, f.value)
		case f.value > 0 && !ours:
			return usagef("--%s goes with --gang-policy %s only", f.name, sim.Ours)
		}
	}
	known := sim.GangPolicies()
	for _, p := range s.gangPolicies {
		if !slices.Contains(known, p) {
			return usagef("--gang-policy %q: want one of %s", p, strings.Join(known, ", "))
		}
	}
	return nil
}

// check refuses flags that are wrong for any content of the files.
func (s *simulation) check(cmd *cobra.Command) error {
	if err := s.checkGangs(cmd); err != nil {
		return err
	}
	if err := s.checkPolicies(cmd); err != nil {
		return err
	}
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
	return nil
}

// checkPolicies refuses policies that nobody has, and weights that the plugin's arguments could not
// have or that go with none of the policies.
func (s *simulation) checkPolicies(cmd *cobra.Command) error {
	if err := checkPolicies(s.policies); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		share float64
	}{
		{"bandwidth-weight", s.weights.Bandwidth}, {"latency-weight", s.weights.Latency}, {"fragmentation-weight", s.weights.Fragmentation},
	} {
		switch {
		case !(f.share >= 0 && f.share <= 1):
			return usagef("--%s %v: want 0 to 1", f.name, f.share)
		case cmd.Flags().Changed(f.name) && (s.fabric != "" || !slices.Contains(s.policies, sim.Ours)):
			return usagef("--%s goes with --policy %s only", f.name, sim.Ours)
		}
	}
	if s.weights == (nodeindex.Weights{}) {
		return usagef("--bandwidth-weight, --latency-weight and --fragmentation-weight: not all may be 0")
	}
	return nil
}

func checkPolicies(policies []string) error {
	known := sim.Policies()
	for _, p := range policies {
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
	if err := t.Flush(); err != nil || r.Gangs == nil {
		return err
	}
	return writeGangResults(w, results)
}

// writeGangResults writes a table of the gangs, with two columns a level.
func writeGangResults(w io.Writer, results []*sim.Result) error {
	levels := slices.Sorted(maps.Keys(results[0].Gangs.OneDomainShare))
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "POLICY\tGANGS\t")
	for _, l := range levels {
		fmt.Fprintf(t, "ONE %s %%\tBY FEWEST\t", strings.ToUpper(l))
	}
	fmt.Fprintln(t, "WAIT S\tLEVELS LOST\tNOT CARRIED OUT\t")
	for _, r := range results {
		g := r.Gangs
		fmt.Fprintf(t, "%s\t%d\t", r.Policy, g.Count)
		for _, l := range levels {
			fmt.Fprintf(t, "%.2f\t%.3f\t", 100*g.OneDomainShare[l], g.DomainsOverFewest[l])
		}
		fmt.Fprintf(t, "%.1f\t%.4f\t%d\t\n", g.MeanWaitSeconds, g.LevelRegret, g.NotCarriedOut)
	}
	return t.Flush()
}
