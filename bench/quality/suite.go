// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// kind is a kind of cluster.
type kind struct {
	name, title string
	machines    []string // of the catalogue, used for the nodes in turn
	// sizes: the machines have 4 and 8 GPUs. Then the question is how long pods of 8
	// wait, and where all pairs of a machine have the same link, it is the only one.
	sizes bool
}

// kinds returns clusters of machines whose pairs differ: where every pair has the
// same link, as behind NVLink switches, only the machine can be chosen. Those of
// different size come last.
func kinds() []kind {
	const pcie, cube, bridged = "l40s-8", "dgx1-v100", "a6000-8-bridged"
	out := []kind{
		{name: "pcie", title: "two-socket PCIe (" + pcie + ")", machines: []string{pcie}},
		{name: "dgx1v", title: "DGX-1V (" + cube + ")", machines: []string{cube}},
		{name: "bridged", title: "bridged pairs (" + bridged + ")", machines: []string{bridged}},
		{name: "mixed", title: "mixed, a third each", machines: []string{pcie, cube, bridged}},
	}
	for _, pair := range [][]string{{"hgx-a100-4", "hgx-a100-8"}, {"gb200-tray", "hgx-b200"}, {"a100-pcie-4-bridged", pcie}, {"a100-pcie-4-bridged", bridged}} {
		title := strings.Join(pair, " and ")
		out = append(out, kind{name: strings.Join(pair, "+"), title: title + ", half each", machines: pair, sizes: true})
	}
	return out
}

func names(kinds []kind) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}

// kindOf returns the kind of a cell's cluster; nil if there is none.
func kindOf(cluster string) *kind {
	all := append(kinds(), fleets()...)
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == cluster })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// nodes returns n machines of the kind.
func (k *kind) nodes(n int) ([]sim.Node, error) {
	graphs := make([]*nvtopo.Graph, len(k.machines))
	for i, name := range k.machines {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
		if graphs[i], err = m.Graph(); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
	}
	out := make([]sim.Node, n)
	for i := range out {
		out[i] = sim.Node{Name: fmt.Sprintf("%s-%03d", k.name, i), Graph: graphs[i%len(graphs)]}
	}
	return out, nil
}

// Names of the traces.
const (
	traceMix    = "multigpu50" // 55 % of one GPU, 17 % of two, 16 % of four, 12 % of eight
	traceLong   = "multigpu50-long"
	tracePhilly = "philly"
	traceOpenb  = "openb"
)

// longer is the factor of the long trace. Near saturation queues grow for weeks: that
// trace shows how much remains of a promise that holds for days.
const longer = 4

// openbFile is the path of the openb list in the directory of the fixtures.
var openbFile = filepath.Join("traces", "openb_pod_list_multigpu50.csv")

// source generates the jobs of a trace; the same for the same seed.
type source struct {
	name string
	jobs func(seed uint64) ([]sim.Job, error)
}

func synthetic(name string, pods int) source {
	return source{name, func(seed uint64) ([]sim.Job, error) { return sim.Synthetic(name, pods, seed) }}
}

// openb returns the list of pods in the directory that NVTOPO_FIXTURES names; ok is
// false without one. The list has no times: the seed draws them.
func openb(fixtures string) (src source, ok bool, err error) {
	if fixtures == "" {
		return source{}, false, nil
	}
	path := filepath.Join(fixtures, openbFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, false, nil
	}
	if err != nil {
		return source{}, false, fmt.Errorf("reading the openb trace: %w", err)
	}
	return source{traceOpenb, func(seed uint64) ([]sim.Job, error) {
		jobs, err := sim.ReadTrace(strings.NewReader(string(data)), seed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return jobs, nil
	}}, true, nil
}

// variant is a compared policy: one of the engine's, or ours changed.
type variant struct {
	name, policy string
	order        *nodeindex.Order
	residual     *nvtopo.Weights
}

// Ours without the residual term shows its effect: across nodes only, and in the
// choice on the node as well.
const (
	oursNoFragmentation = "ours:fragmentation=0"
	oursNoResidual      = "ours:residual=0"
)

func ablations() []variant {
	o := nodeindex.DefaultOrder()
	o.Weights.Fragmentation = 0
	return []variant{
		{name: oursNoFragmentation, policy: sim.Ours, order: &o},
		{name: oursNoResidual, policy: sim.Ours, order: &o, residual: &nvtopo.Weights{}},
	}
}

// variants returns all policies, ours first, and the ablations.
func variants() []variant {
	var out []variant
	for _, name := range sim.Policies() {
		if !strings.HasPrefix(name, "reserve+") { // it is for machines of several speeds: see fleets
			out = append(out, variant{name: name, policy: name})
		}
	}
	return append(out, ablations()...)
}

// isPeer reports whether a policy is neither ours nor one of its ablations.
func isPeer(policy string) bool { return !strings.HasPrefix(policy, sim.Ours) }

// isForeign reports whether a peer can be run without our code: the picker "exact"
// reads our own tables, so with it only the choice of the node is another's.
func isForeign(policy string) bool { return isPeer(policy) && !strings.HasSuffix(policy, "+exact") }

// Cell is one comparison.
type Cell struct {
	Cluster string  `json:"cluster"`
	Trace   string  `json:"trace"`
	Nodes   int     `json:"nodes"`
	Load    float64 `json:"load"`
	// PodPolicy is the topology policy of pods and kubelets; empty: best-effort.
	PodPolicy string `json:"podPolicy,omitempty"`
	// RunsByPlacement marks the cells in which durations depend on GPUs and links.
	RunsByPlacement bool `json:"runsByPlacement,omitempty"`
}

// String returns the cell's title over its table.
func (c *Cell) String() string {
	title := c.Cluster
	if k := kindOf(c.Cluster); k != nil {
		title = k.title
	}
	s := fmt.Sprintf("%s, %d nodes, %s, load %g", title, c.Nodes, c.Trace, c.Load)
	if c.PodPolicy != "" {
		s += ", pods and kubelets " + c.PodPolicy
	}
	if c.RunsByPlacement {
		s += ", runs by placement"
	}
	return s
}

// sizes reports whether the cell's machines differ in size.
func (c *Cell) sizes() bool {
	k := kindOf(c.Cluster)
	return k != nil && k.sizes
}

// task is a cell with the data to replay it.
type task struct {
	Cell
	nodes    []sim.Node
	source   source
	policy   nvtopo.Policy
	variants []variant
	message  float64 // bytes of the all-reduce to judge; 0: nothing is judged
}

func tasksOf(o *options) ([]task, error) {
	if o.unequal {
		return judgedSuite(o)
	}
	return suite(o)
}

// suite returns the tasks of the options, in the order of the report.
func suite(o *options) ([]task, error) {
	small, large := synthetic(traceMix, o.pods), synthetic(traceMix, o.largePods)
	var out []task
	for _, k := range o.kinds {
		add := func(n int, src source, load float64, p nvtopo.Policy) error {
			nodes, err := k.nodes(n)
			if err != nil {
				return err
			}
			t := task{Cell: Cell{Cluster: k.name, Trace: src.name, Nodes: n, Load: load}, nodes: nodes, source: src, policy: p, variants: variants()}
			if p != 0 {
				t.PodPolicy = p.String()
			}
			out = append(out, t)
			return nil
		}
		for _, load := range o.loads {
			if err := add(o.nodes, small, load, 0); err != nil {
				return nil, err
			}
		}
		if k.sizes {
			continue // neither traces nor policies add anything about sizes
		}
		if o.largeNodes > 0 {
			for _, load := range checkedLoads() {
				if err := add(o.largeNodes, large, load, 0); err != nil {
					return nil, err
				}
			}
		}
		if o.long > 0 {
			src := source{traceLong, synthetic(traceMix, o.long).jobs}
			if err := add(o.nodes, src, checkedLoads()[1], 0); err != nil {
				return nil, err
			}
		}
		for _, src := range o.extra {
			if err := add(o.nodes, src, checkedLoads()[0], 0); err != nil {
				return nil, err
			}
		}
		// With a policy that kubelets enforce, a node that would refuse the pod costs
		// an attempt.
		if err := add(o.nodes, small, checkedLoads()[0], nvtopo.PolicySingleNUMANode); err != nil {
			return nil, err
		}
	}
	return out, nil
}
