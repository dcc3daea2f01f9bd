// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// TestModelRun: a short run judges gangs on fabrics of several models, and ours are on one each.
func TestModelRun(t *testing.T) {
	o, err := parse([]string{"-models", "-seeds", "2", "-jobs", "3000", "-mixes", "train", "-loads", "0.9"}, io.Discard, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2 || !r.Few {
		t.Errorf("%d cells, few %t; want two, of two and of four models, with fewer jobs than the bars are set for", len(r.Cells), r.Few)
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		foreign := 0
		for _, p := range c.Policies {
			j := p.judged()
			if j.ofGangs == 0 || len(j.time) != 2 || len(j.waits) == 0 || !(p.AllReduceMS > 0) {
				t.Errorf("%s %s, %s: %+v, want gangs, two times and waits", c.Cluster, c.String(), p.String(), j)
			}
			switch {
			case p.Policy != sim.Ours:
				foreign += p.MixedModels
			case p.MixedModels > 0:
				t.Errorf("%s %s, %s: %d gangs on several models", c.Cluster, c.String(), p.String(), p.MixedModels)
			}
		}
		if foreign == 0 {
			t.Errorf("%s %s: no policy has gangs on several models: this was not a test", c.Cluster, c.String())
		}
	}
	var b bytes.Buffer
	if err := writeModels(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"two-models", "four-models", "on several models", "all-reduce of gangs by the best policy's", "wait of 16 GPUs, s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// TestModelBars: mixed gangs, jobs that never ran and slower all-reduces are missed bars.
func TestModelBars(t *testing.T) {
	policy := func(v Variant, ms float64, mixed, unfinished int) PolicySummary {
		return PolicySummary{Variant: v, AllReduceMS: ms, MixedModels: mixed, Unfinished: unfinished}
	}
	tests := map[string]struct {
		ours, other PolicySummary
		want        int // missed
	}{
		"as fast as another":                            {policy(ours(0), 104, 0, 0), policy(Variant{Policy: kueue}, 100, 9, 0), 0},
		"slower than another":                           {policy(ours(0), 106, 0, 0), policy(Variant{Policy: kueue}, 100, 9, 0), 1},
		"a gang on two models":                          {policy(ours(0), 90, 1, 0), policy(Variant{Policy: kueue}, 100, 9, 0), 1},
		"jobs that never ran":                           {policy(ours(0), 90, 0, 8), policy(Variant{Policy: kueue}, 100, 9, 0), 1},
		"a policy with jobs that never ran sets no bar": {policy(ours(0), 106, 0, 0), policy(Variant{Policy: kueue}, 100, 9, 1), 0},
		"slower than with patience":                     {policy(ours(0), 106, 0, 0), policy(ours(300), 100, 0, 0), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bars := modelBars(&CellSummary{Cell: Cell{Cluster: "two-models"}, Policies: []PolicySummary{tc.ours, tc.other}})
			if got := missedOf(bars); got != tc.want {
				t.Errorf("%d bars missed, want %d: %+v", got, tc.want, bars)
			}
		})
	}
}

// TestModelClusters: every model has as many nodes, and every fourth rack of a model has all models.
func TestModelClusters(t *testing.T) {
	clusters, err := modelClusters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clusters {
		nodes, mixed := map[string]int{}, 0
		for d := range c.tree.Domains(2) {
			models := map[string]bool{}
			for i := range c.nodes {
				if n, ok := c.tree.Node(c.nodes[i].Name); ok && c.tree.DomainOf(2, n) == d {
					model := c.nodes[i].Graph.GPUs[0].Model
					models[model] = true
					nodes[model]++
				}
			}
			if len(models) > 1 {
				mixed++
			}
		}
		for model, n := range nodes {
			if n != racksOfModel*nodesOfRack {
				t.Errorf("%s: %d nodes with %s, want %d", c.name, n, model, racksOfModel*nodesOfRack)
			}
		}
		if racks := len(c.tree.Domains(2)); mixed != racks/4 {
			t.Errorf("%s: %d of %d racks have several models, want a quarter", c.name, mixed, racks)
		}
	}
}
