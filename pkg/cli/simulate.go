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
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
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
	weights      []string // of the policy ours, each as parseWeights reads them
	load, warmUp float64
	seed         uint64
	podPolicy    string
	message      string // size of the judged all-reduce; empty: nothing is judged
	byPlacement  bool
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
        of the fragmentation the trace's mix of sizes expects), reserve (pods of
        several GPUs to the fastest machines, others to the slowest; fewest free)
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

The pods after the first jobs (--warm-up) are measured. --message-size also judges
what they got by code that policies do not choose by: an all-reduce of that size,
waits and completion, by the GPUs of a pod. docs/howto/simulate.md describes the
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
	f.StringArrayVar(&s.weights, "weights", nil, "with --policy ours: bandwidthWeight,latencyWeight,fragmentationWeight of TopologyAware; may be given several times (default 0.4,0.3,0.3)")
	f.StringVar(&s.fabric, "fabric", "", "CSV with the domains of each node; then --nodes is CSV with the machine of each")
	f.StringArrayVar(&s.gangPolicies, "gang-policy", []string{sim.Ours}, "with --fabric: "+strings.Join(sim.GangPolicies(), ", ")+"; may be given several times")
	f.DurationVar(&s.patience, "placement-patience", 0, "with --gang-policy ours: how long a gang waits for a level as good as in the empty cluster")
	f.DurationVar(&s.drainAfter, "drain-after", 0, "with --gang-policy ours: after how long without room nodes are closed to younger jobs for a gang; 0 is never")
	f.Float64Var(&s.load, "load", 0.85, "rescale arrivals so that the jobs ask for this share of the cluster's GPU time; 0 leaves them as they are")
	f.Uint64Var(&s.seed, "seed", 1, "seed of what is drawn: a synthetic trace, times a trace lacks, random picks")
	f.IntVar(&s.pods, "pods", 20_000, "with synthetic:NAME: pods to draw")
	f.Float64Var(&s.warmUp, "warm-up", sim.DefaultWarmUp, "share of the jobs that are replayed first and not measured")
	f.StringVar(&s.podPolicy, "pod-policy", nvtopo.PolicyBestEffort.String(),
		"topology policy of the pods that fit one NUMA node, and of all kubelets: best-effort or single-numa-node")
	f.StringVar(&s.message, "message-size", "", "also judge placements: all-reduces of this size (1GB), waits and completion by the GPUs of a pod, up to 16")
	f.BoolVar(&s.byPlacement, "runs-by-placement", false, "with --message-size: a job runs for as long as its GPUs and their links make it")
	return cmd
}

// run measures the policies one after another on the same jobs.
func (s *simulation) run(cmd *cobra.Command) ([]*sim.Result, error) {
	config, err := s.config(cmd)
	if err != nil {
		return nil, err
	}
	config.Tables = &sim.Tables{}
	policies := s.policies
	if s.fabric != "" {
		policies = s.gangPolicies
	}
	if len(s.weights) > 0 {
		return s.runWeights(cmd, config)
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

// runWeights measures the policies, ours with each of the weights.
func (s *simulation) runWeights(cmd *cobra.Command, config *sim.Config) (out []*sim.Result, err error) {
	for _, p := range s.policies {
		variants := []string{""}
		if p == sim.Ours {
			variants = s.weights
		}
		for _, text := range variants {
			config.Policy, config.Order = p, nil
			if text != "" {
				w, err := parseWeights(text)
				if err != nil {
					return nil, err
				}
				order := nodeindex.DefaultOrder()
				order.Weights = *w
				config.Order = &order
			}
			r, err := sim.Run(cmd.Context(), *config)
			if err != nil {
				return nil, inputf("%w", err)
			}
			if text != "" {
				r.Policy += " " + text
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// parseWeights reads three shares from 0 to 1, not all 0, as the scheduler's arguments allow.
func parseWeights(text string) (*nodeindex.Weights, error) {
	parts := strings.Split(text, ",")
	var shares [3]float64
	if len(parts) != len(shares) {
		return nil, usagef("--weights %q: want three numbers: bandwidth,latency,fragmentation", text)
	}
	for i, part := range parts {
		share, err := strconv.ParseFloat(part, 64)
		if err != nil || !(share >= 0 && share <= 1) { // NaN is in no range
			return nil, usagef("--weights %q: %q is no number from 0 to 1", text, part)
		}
		shares[i] = share
	}
	if shares == [3]float64{} {
		return nil, usagef("--weights %q: one must be above 0", text)
	}
	return &nodeindex.Weights{Bandwidth: shares[0], Latency: shares[1], Fragmentation: shares[2]}, nil
}

func (s *simulation) config(cmd *cobra.Command) (*sim.Config, error) {
	c := &sim.Config{Load: s.load, Seed: s.seed, WarmUp: s.warmUp, RunsByPlacement: s.byPlacement}
	if err := s.check(cmd); err != nil {
		return nil, err
	}
	var err error
	switch {
	case s.message != "":
		if c.MessageBytes, err = parseSize(s.message, false); err != nil {
			return nil, usagef("--message-size: %w", err)
		}
	case s.byPlacement:
		return nil, usagef("--runs-by-placement goes with --message-size only")
	}
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
	if err := s.checkPolicies(); err != nil {
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

// checkPolicies refuses unknown policies, and weights for policies other than ours.
func (s *simulation) checkPolicies() error {
	known := sim.Policies()
	for _, p := range s.policies {
		if !slices.Contains(known, p) {
			return usagef("--policy %q: want ours, or one of spread, binpack, fgd and reserve with one of random, lowest, hami, best-effort, prim and exact, as in binpack+exact", p)
		}
	}
	if len(s.weights) > 0 && (s.fabric != "" || !slices.Contains(s.policies, sim.Ours)) {
		return usagef("--weights goes with --policy %s, and without --fabric", sim.Ours)
	}
	for _, text := range s.weights {
		if _, err := parseWeights(text); err != nil {
			return err
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
	printf(w, "%d nodes, %d GPUs; %d pods measured, %d of them with several GPUs", r.Nodes, r.GPUs, r.Pods, r.MultiGPUPods)
	fmt.Fprintln(w)
	if r.Unplaceable > 0 {
		printf(w, "left out, because they do not fit even in the empty cluster: %d pods\n", r.Unplaceable)
	}
	for _, r := range results {
		if r.Unfinished > 0 {
			printf(w, "%s never found room for %d pods\n", r.Policy, r.Unfinished)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "POLICY\tBEST CLASS %\tRING %\tREGRET GB/S\tONE NUMA %\tREJECTED\tALLOCATED %\tFRAGMENTED %\tSTRANDED %\tWAIT S\tP99\tMULTI\t8 GPUS\t")
	for _, r := range results {
		printf(t, "%s\t%.2f\t%.2f\t%.3f\t%.1f\t%d\t%.2f\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t\n",
			r.Policy, 100*r.BestClassShare, 100*r.MeanRingRatio, r.MeanRegretGBps, 100*r.SingleNUMAShare, r.KubeletRejections,
			100*r.AllocationRatio, 100*r.FGDFragmentation, 100*r.StrandedForFour, r.MeanWaitS, r.P99WaitS, r.MeanWaitMultiS, r.MeanWait8S)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Judged != nil {
		if err := writeVerdicts(w, results); err != nil {
			return err
		}
	}
	if r.Gangs == nil {
		return nil
	}
	return writeGangResults(w, results)
}

// writeVerdicts writes a table of the judged placements, with three columns for each size.
func writeVerdicts(w io.Writer, results []*sim.Result) error {
	sizes := slices.Sorted(maps.Keys(results[0].Judged.BySize))
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "POLICY\tALL-REDUCE MS\tCOMPLETION S\t")
	for _, k := range sizes {
		if k > 1 {
			printf(t, "MS OF %d\t", k)
		}
		printf(t, "WAIT OF %d\tP95\t", k)
	}
	fmt.Fprintln(t)
	for _, r := range results {
		printf(t, "%s\t%.2f\t%.0f\t", r.Policy, r.Judged.AllReduceMS, r.Judged.CompletionS)
		for _, k := range sizes {
			v := r.Judged.BySize[k]
			if k > 1 {
				printf(t, "%.2f\t", v.AllReduceMS)
			}
			printf(t, "%.1f\t%.0f\t", v.MeanWaitS, v.P95WaitS)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeGangResults writes a table of the gangs, with two columns per level, and two more if they are
// judged.
func writeGangResults(w io.Writer, results []*sim.Result) error {
	levels := slices.Sorted(maps.Keys(results[0].Gangs.OneDomainShare))
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "POLICY\tGANGS\t")
	for _, l := range levels {
		printf(t, "ONE %s %%\tBY FEWEST\t", strings.ToUpper(l))
	}
	fmt.Fprint(t, "WAIT S\tLEVELS LOST\tNOT CARRIED OUT\t")
	if results[0].Judged != nil {
		fmt.Fprint(t, "ALL-REDUCE MS\tSEVERAL MODELS\t")
	}
	fmt.Fprintln(t)
	for _, r := range results {
		g := r.Gangs
		printf(t, "%s\t%d\t", r.Policy, g.Count)
		for _, l := range levels {
			printf(t, "%.2f\t%.3f\t", 100*g.OneDomainShare[l], g.DomainsOverFewest[l])
		}
		printf(t, "%.1f\t%.4f\t%d\t", g.MeanWaitSeconds, g.LevelRegret, g.NotCarriedOut)
		if r.Judged != nil {
			j := r.Judged.Gangs
			if j == nil {
				j = &judge.GangVerdict{} // none started
			}
			printf(t, "%.2f\t%d\t", j.AllReduceMS, j.MixedModels)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
