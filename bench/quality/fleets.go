// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// fleets returns clusters of several kinds of machine, and two of one kind for comparison. Machines are
// used in turn, so a name that occurs twice has twice the nodes.
func fleets() []kind {
	const hopper, ampere, volta, pcie = "hgx-h200", "dgx-a100", "dgx1-v100", "l40s-8"
	all := map[string][]string{
		"gb200+l40s":      {"gb200-tray", "gb200-tray", pcie}, // fast machines of 4 beside slow ones of 8
		"dgx2+h200+l40s":  {"dgx2", hopper, pcie},
		"a100+v100":       {ampere, volta},
		"h200+l40s":       {hopper, pcie},
		"four-kinds":      {hopper, ampere, pcie, volta},
		"h200-nvl+a100":   {"h200-nvl-8", "hgx-a100-8"},
		"a100-4+a100-8":   {"hgx-a100-4", "hgx-a100-8"},
		"a100-pcie+l40s":  {"a100-pcie-4-bridged", pcie},
		"only-h200":       {hopper},
		"only-dgx1-v100":  {volta},
		"b200+h100+a6000": {"hgx-b200", "dgx-h100", "a6000-8-bridged"},
	}
	var out []kind
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, kind{name: name, title: name + " (" + strings.Join(all[name], ", ") + ")", machines: all[name]})
	}
	return out
}

// judgedLoads are from a half-empty cluster to one in which queues grow.
func judgedLoads() []float64 { return []float64{0.55, 0.70, 0.85, 0.95, 0.97} }

// judgedPolicies returns ours and rules that use the node with the best GPUs in common, so that only
// the choice of the node differs, and the default scheduler beside NVIDIA's device plugin. That plugin
// tries all partitions of a machine; with 16 GPUs the lowest ones are taken instead.
func judgedPolicies(k *kind) ([]variant, error) {
	stock := "spread+best-effort"
	for _, name := range k.machines {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
		g, err := m.Graph()
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
		if g.Len() > 10 {
			stock = "spread+lowest"
		}
	}
	var out []variant
	for _, name := range []string{sim.Ours, "reserve+exact", "binpack+exact", "spread+exact", "fgd+exact", stock} {
		out = append(out, variant{name: name, policy: name})
	}
	return append(out, otherOrders()...), nil
}

// otherOrders returns ours with other arguments: machines are left to larger pods sooner, later or
// never, and single GPUs go where they take the least share of a machine, or to the slowest GPUs.
func otherOrders() []variant {
	of := func(name string, change func(*nodeindex.Order)) variant {
		o := nodeindex.DefaultOrder()
		change(&o)
		return variant{name: "ours:" + name, policy: sim.Ours, order: &o}
	}
	return []variant{
		of("headroom=3", func(o *nodeindex.Order) { o.Headroom = 3 }),
		of("headroom=1", func(o *nodeindex.Order) { o.Headroom = 1 }),
		of("headroom=0", func(o *nodeindex.Order) { o.Headroom = 0 }),
		of("singles=least-lost", func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesLeastLost }),
		of("singles=slow-gpus", func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesSlowGPUs }),
	}
}

// judgedSuite returns the tasks in which placements are judged, in the order of the report. All-reduces
// and waits are compared where all policies have the same work at the same load. The additional cell of
// each, in which jobs run as fast as their GPUs and links allow, shows how much sooner they end.
func judgedSuite(o *options) ([]task, error) {
	var out []task
	for _, k := range o.kinds {
		nodes, err := k.nodes(o.nodes)
		if err != nil {
			return nil, err
		}
		variants, err := judgedPolicies(&k)
		if err != nil {
			return nil, err
		}
		src := synthetic(traceMix, o.pods)
		for _, load := range o.loads {
			for _, byPlacement := range []bool{false, true} {
				out = append(out, task{
					Cell:  Cell{Cluster: k.name, Trace: src.name, Nodes: o.nodes, Load: load, RunsByPlacement: byPlacement},
					nodes: nodes, source: src, variants: variants, message: judge.DefaultBytes,
				})
			}
		}
	}
	return out, nil
}
