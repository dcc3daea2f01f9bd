// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

func newFabric() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "Racks and switches: draw them, label nodes, place gangs of pods",
		Long: `Show a cluster's racks and switches with what is free in each, write the labels of nodes
that say where they are, and place the pods of a gang by them on paper.`,
		Example: `  NVTOPO fabric show
  NVTOPO fabric label --fabric fabric.csv
  NVTOPO fabric place --fabric fabric.csv --nodes nodes.csv --pods 4 --gpus 8`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFabricPlace(), newFabricLabel(), newFabricShow())
	return cmd
}

// fabricPlacement has the flags of fabric place.
type fabricPlacement struct {
	out                   outputFlag
	fabric, nodes, free   string
	topology              string
	pods, gpus            int
	required, preferred   string
	segmentSize           int
	requiredSegment       string
	preferredSegment      string
	strategy              string
	spreadOver            string
	maxPerDomain          int
	policy, minLink, size string
	minBandwidth          string
	mixed                 bool
}

// placedGang is the output of fabric place; its JSON form is part of the command's contract.
type placedGang struct {
	Placed     bool                `json:"placed"`
	Level      string              `json:"level"`
	Domains    map[string][]string `json:"domains"`
	Pods       []placedPod         `json:"pods"`
	Quality    string              `json:"quality"`
	EstimateMs gangEstimate        `json:"estimateMs"`
	Crossings  int                 `json:"crossings"`
	Exact      bool                `json:"exact"`
	Model      string              `json:"model"`
	Chosen     string              `json:"chosen"`
	Others     []string            `json:"others,omitempty"`
}

type placedPod struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	GPUs []int  `json:"gpus"`
}

// gangEstimate has 0 where a bandwidth is missing.
type gangEstimate struct {
	fabric.Compat
	Hierarchical float64 `json:"hierarchical"`
	known        bool    // all of it
}

// notPlaced is the output when there is no room.
type notPlaced struct {
	Placed bool   `json:"placed"`
	Reason string `json:"reason"`
}

func newFabricPlace() *cobra.Command {
	var o fabricPlacement
	cmd := &cobra.Command{
		Use:   "place --fabric FILE --nodes FILE --pods P --gpus G",
		Short: "Choose the nodes and GPUs of all pods of a gang",
		Long: `Choose the nodes and GPUs of a gang of P pods of G GPUs each, all of them or none: in
the smallest domain of the fabric that can hold them, each node counted by the disjoint
linked sets of GPUs that it can give, in the order of ranks. All get GPUs of one model,
unless --allow-mixed-models. Of places that are as near, that is taken whose all-reduce is
faster; if --topology gives the bandwidth and latency of all links, the time comes first.
The objective is that of decision 0019 of the project.

The files are CSV. FABRIC is node and the levels, outermost first; an empty domain is a
missing label:
  node,spine,rack
  node-0-0,spine-0,rack-0
NODES is node and machine, with a machine of the catalogue (see NVTOPO machines). A node
of the fabric that is not there has no GPUs; one that is not in the fabric is alone.
FREE is node and free, with the indices of the free GPUs:
  node,free
  node-0-0,0 1 4 5
All GPUs of a node that is left out are free. "-" is standard input, for one of them.

With -o json the answer is one object:
  placed      true
  level       of the smallest domain with all pods: a level, node or cluster
  domains     by level, the domains with pods
  pods        rank, node and GPU indices
  quality     optimal, optimal (same rack), good (same switch), acceptable (adjacent
              racks) or suboptimal (distributed)
  estimateMs  all-reduce of --size: ring, tree and other by rules of thumb between nodes
              (1 GB = 1024 MB), and hierarchical, in the nodes and between them;
              0 if a bandwidth that they need is not known
  crossings   how often the ring of ranks leaves an innermost domain
  exact       it is proven that no plan on the same models, rings and domains is nearer
  model       of the GPUs
  chosen      the plan in a few words, as "8 × MODEL in DOMAIN, 3.5 ms"
  others      the best plan on each other model, as "DOMAIN (MODEL) 16.7 ms"
Two nodes in one innermost domain are taken to have 100 GB/s and 100 µs, others 50 GB/s
and 500 µs, unless --topology says otherwise: a file with a ClusterTopology, whose levels
are those of FABRIC by their names. Its excluded domains get no pods; its nodeBandwidths
do not count, since nodes on paper have no labels.

If there is no room the exit code is 1, and the object is {"placed":false,"reason":…},
such as "rack: 3 of 4".`,
		Example: `  NVTOPO fabric place --fabric fabric.csv --nodes nodes.csv --pods 4 --gpus 8
  NVTOPO fabric place --fabric fabric.csv --nodes nodes.csv --free free.csv --pods 8 --gpus 8 \
    --required-topology spine --segment-size 4 -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.fabric, "fabric", "", "CSV with the domains of each node (required)")
	f.StringVar(&o.nodes, "nodes", "", "CSV with the machine of each node (required)")
	f.StringVar(&o.free, "free", "", "CSV with the free GPUs of each node (default: all are free)")
	f.StringVar(&o.topology, "topology", "", "file with a ClusterTopology: levels, links, overrides and excluded domains")
	f.IntVar(&o.pods, "pods", 0, "how many pods (required)")
	f.IntVar(&o.gpus, "gpus", 0, "how many GPUs each of them (required)")
	f.StringVar(&o.required, "required-topology", "", "level of which one domain must have all pods")
	f.StringVar(&o.preferred, "preferred-topology", "", "level of which one domain should: such a plan comes before a faster one beyond it")
	f.IntVar(&o.segmentSize, "segment-size", 0, "pods of consecutive ranks that belong into one domain; it divides --pods")
	f.StringVar(&o.preferredSegment, "preferred-segment-topology", "", "level that segments should be in one domain of (default: the innermost)")
	f.StringVar(&o.requiredSegment, "required-segment-topology", "", "level that segments must be in one domain of")
	f.StringVar(&o.strategy, "placement-strategy", fabric.StrategyMixed.String(), "communication-heavy, mixed (both: near each other) or compute-heavy (spread evenly)")
	f.StringVar(&o.spreadOver, "spread-over", "", "level to spread over evenly (default with compute-heavy: the innermost)")
	f.IntVar(&o.maxPerDomain, "max-per-domain", 0, "most pods in one domain of that level; 0: any")
	f.StringVar(&o.policy, "policy", nvtopo.PolicyBestEffort.String(), "none, best-effort, restricted or single-numa-node")
	f.StringVar(&o.minLink, "min-link", "", "worst link class accepted between any two GPUs of a pod, for example NVLINK, NV4 or PHB")
	f.StringVar(&o.minBandwidth, "min-bandwidth", "", "least bandwidth of the weakest link of a pod's ring in GB/s, or with a unit: 100GB/s, 800Gb/s")
	f.BoolVar(&o.mixed, "allow-mixed-models", false, "accept GPUs of different models, in one pod and in the gang")
	f.StringVar(&o.size, "size", "1GB", "size of each GPU's buffer, for the estimates, by which plans are compared where the network is known")
	return cmd
}

func (o *fabricPlacement) run(cmd *cobra.Command) error {
	if err := o.out.check(); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	p := pickOptions{policy: o.policy, minLink: o.minLink, minBandwidth: o.minBandwidth, mixed: o.mixed}
	con, err := p.constraint(cmd.Flags().Changed("min-bandwidth"))
	if err != nil {
		return err
	}
	size, err := parseSize(o.size, false)
	if err != nil {
		return usagef("--size: %w", err)
	}
	request, err := o.request()
	if err != nil {
		return err
	}
	c, err := o.load(cmd)
	if err != nil {
		return err
	}
	shape := c.shape(o.gpus, con)
	if !o.mixed {
		shape.Kind = 1
	}
	request.Shapes = []fabric.Shape{shape}
	request.MessageBytes = size
	plan, err := fabric.Place(c.tree, request)
	var none *fabric.UnplaceableError
	switch {
	case errors.As(err, &none):
		return o.refuse(cmd.OutOrStdout(), none)
	case err != nil:
		return usagef("%w", err)
	}
	answer := c.answer(plan, size)
	return o.out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error { return writeGang(w, c.tree, answer) })
}

// check refuses flags that are wrong for any content of the files.
func (o *fabricPlacement) check() error {
	if err := o.checkFiles(); err != nil {
		return err
	}
	switch {
	case o.pods < 1 || o.pods > fabric.MaxNodes:
		return usagef("--pods is needed: the number of pods, 1 or more and at most %d", fabric.MaxNodes)
	case o.gpus < 1 || o.gpus > nvtopo.MaxGPUs:
		return usagef("--gpus is needed: the GPUs of each pod, 1 or more and at most %d", nvtopo.MaxGPUs)
	case o.requiredSegment != "" && o.preferredSegment != "":
		return usagef("--required-segment-topology and --preferred-segment-topology cannot both be given")
	case o.segmentSize == 0 && o.requiredSegment+o.preferredSegment != "":
		return usagef("a level of segments needs --segment-size")
	}
	return nil
}

// checkFiles refuses files that are missing, or are the same one.
func (o *fabricPlacement) checkFiles() error {
	inputs := 0
	for _, file := range []string{o.fabric, o.nodes, o.free, o.topology} {
		if file == stdin {
			inputs++
		}
	}
	switch {
	case o.fabric == "":
		return usagef("--fabric is needed: the file with the domains of each node")
	case o.nodes == "":
		return usagef("--nodes is needed: the file with the machine of each node")
	case inputs > 1:
		return usagef("only one of --fabric, --nodes, --free and --topology can be standard input")
	}
	return nil
}

func (o *fabricPlacement) request() (*fabric.Request, error) {
	strategy, err := fabric.ParseStrategy(o.strategy)
	if err != nil {
		return nil, usagef("--placement-strategy: %w", err)
	}
	r := &fabric.Request{
		Members: make([]fabric.Member, o.pods), Strategy: strategy, Required: o.required, Preferred: o.preferred,
		SegmentSize: o.segmentSize, SegmentLevel: o.preferredSegment, SpreadOver: o.spreadOver, MaxPerDomain: o.maxPerDomain,
	}
	if o.requiredSegment != "" {
		r.SegmentLevel, r.SegmentRequired = o.requiredSegment, true
	}
	return r, nil
}

// refuse prints that there is no room.
func (o *fabricPlacement) refuse(w io.Writer, reason *fabric.UnplaceableError) error {
	if o.out != "text" {
		if err := o.out.write(w, notPlaced{Reason: reason.Error()}, nil); err != nil {
			return err
		}
	}
	return noAnswerf("no room for %d pods of %d GPUs: %w", o.pods, o.gpus, reason)
}

// answer converts a plan to the output.
func (c *fabricCluster) answer(p *fabric.Plan, size float64) *placedGang {
	a := &placedGang{
		Placed: true, Level: p.Level, Domains: c.tree.DomainNames(p), Quality: c.tree.Quality(p.Nodes),
		Crossings: p.Crossings, Exact: p.Exact, Model: p.Chosen.Model, Chosen: p.Chosen.String(),
	}
	for _, o := range p.Others {
		a.Others = append(a.Others, o.Instead())
	}
	together := map[int]nvtopo.Mask{} // GPUs by node
	for rank, n := range p.Nodes {
		in := input{graph: c.tables[n].Graph()}
		a.Pods = append(a.Pods, placedPod{Rank: rank, Node: c.tree.Name(n), GPUs: in.members(p.Sets[rank])})
		together[n] |= p.Sets[rank]
	}
	most, ring := 0, int64(math.MaxInt64)
	for n, set := range together {
		most = max(most, set.Len())
		if set.Len() > 1 {
			ring = min(ring, c.tables[n].Ring(set))
		}
	}
	e, compatKnown, known := &a.EstimateMs, false, false
	e.Compat, compatKnown = c.tree.Compat(p.Nodes, size/1e6, fabric.BinaryUnits)
	e.Hierarchical, known = c.tree.Estimate(p.Nodes, most, ring, size)
	e.known = known && compatKnown
	return a
}

func writeGang(w io.Writer, t *fabric.Tree, a *placedGang) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "RANK\tNODE\tGPUS")
	for _, p := range a.Pods {
		printf(out, "%d\t%s\t%s\n", p.Rank, p.Node, join(p.GPUs))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	printf(out, "Level\t%s\n", a.Level)
	for _, l := range t.Levels() {
		printf(out, "Domains\t%s: %s\n", l.Name, strings.Join(a.Domains[l.Name], ", "))
	}
	printf(out, "Quality\t%s\n", a.Quality)
	printf(out, "Chosen\t%s\n", strings.Join(append([]string{a.Chosen}, a.Others...), "; "))
	if e := a.EstimateMs; e.known {
		printf(out, "All-reduce\t%.3f ms; between nodes by ring %.3f, tree %.3f, other %.3f\n", e.Hierarchical, e.Ring, e.Tree, e.Other)
	} else {
		fmt.Fprintln(out, "All-reduce\tunknown: not every bandwidth is known")
	}
	printf(out, "Crossings\t%d\n", a.Crossings)
	if !a.Exact {
		fmt.Fprintln(out, "Exact\tno: it is not proven that nothing is better")
	}
	return out.Flush()
}
