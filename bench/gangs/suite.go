// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// allLoads returns the loads that bars are set for.
func allLoads() []float64 { return []float64{0.7, 0.9, 0.95} }

// Names of the gang policies that bars and tables use.
const (
	kueue    = "kueue"
	firstFit = "first-fit"
)

// Variant is a gang policy with its topology wait timeout.
type Variant struct {
	Policy   string  `json:"policy"`
	Patience float64 `json:"patienceSeconds"`
}

// String returns the variant's name in the tables.
func (v Variant) String() string {
	if v.Patience > 0 {
		return fmt.Sprintf("%s, %g s", v.Policy, v.Patience)
	}
	return v.Policy
}

// ours returns our own policy with a topology wait timeout in seconds.
func ours(patience float64) Variant { return Variant{sim.Ours, patience} }

// Cell is one comparison.
type Cell struct {
	Cluster string  `json:"cluster"`
	Title   string  `json:"title"` // of the cluster
	Machine string  `json:"machine"`
	Mix     string  `json:"mix"`
	Load    float64 `json:"load"`
	// PodPolicy is the topology policy of pods and kubelets; empty: best-effort.
	PodPolicy string `json:"podPolicy,omitempty"`
}

// String returns the cell's name in its row.
func (c *Cell) String() string {
	s := fmt.Sprintf("%s %g", c.Mix, c.Load)
	if c.PodPolicy != "" {
		s += ", " + c.PodPolicy
	}
	return s
}

// task is a cell with the data to replay it.
type task struct {
	Cell
	on       *cluster
	mix      mix
	jobs     int
	policy   nvtopo.Policy
	timed    bool // its plans are timed
	variants []Variant
	message  float64 // bytes of the all-reduce to judge; 0: nothing is judged
}

// suite returns the tasks of the options, in the order of the report.
func suite(o *options) ([]task, error) {
	var out []task
	add := func(on *cluster, m mix, load float64, jobs int, policy nvtopo.Policy, variants []Variant) {
		t := task{Cell: Cell{Cluster: on.name, Title: on.title, Machine: on.machine, Mix: m.name, Load: load}, on: on, mix: m, jobs: jobs, policy: policy}
		if policy != 0 {
			t.PodPolicy = policy.String()
		}
		t.timed, t.variants = on.name == largeName, variants
		out = append(out, t)
	}
	others := []Variant{{kueue, 0}, {"koordinator", 0}, {"volcano", 0}}
	if o.small {
		on, err := lingjun(o.fixtures)
		if err != nil {
			return nil, err
		}
		all := append([]Variant{ours(0), ours(300), ours(900)}, append(others, Variant{firstFit, 0})...)
		for _, m := range o.chosen() {
			for _, load := range o.loads {
				add(on, m, load, o.jobs, 0, all)
			}
			if m.name == mixFrag {
				// Free GPUs that are no slots: pods that must have one NUMA node.
				add(on, m, checkedLoad, o.jobs, nvtopo.PolicySingleNUMANode, all)
			}
		}
	}
	if o.large {
		on, err := large()
		if err != nil {
			return nil, err
		}
		for _, m := range o.chosen() {
			for _, load := range o.loads {
				if _, ok := largeBars()[barKey{m.name, load}]; ok {
					add(on, m, load, o.largeJobs, 0, append([]Variant{ours(0), ours(300)}, others...))
				}
			}
		}
		add(on, wide(), checkedLoad, o.largeJobs/10, 0, []Variant{ours(0)})
	}
	return out, nil
}

// chosen returns the mixes to replay.
func (o *options) chosen() (out []mix) {
	for _, m := range mixes() {
		if !slices.Contains(o.mixes, m.name) {
			continue
		}
		if o.openb {
			m.singles = openbSingles()
		}
		out = append(out, m)
	}
	return out
}
