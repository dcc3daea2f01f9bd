// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"math"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Nodes returns the nodes of the gang, in the order of their first ranks.
func (a *Answer) Nodes() []string {
	var names []string
	seen := map[int]bool{}
	for _, node := range a.Plan.Nodes {
		if !seen[node] {
			seen[node] = true
			names = append(names, a.tree.Name(node))
		}
	}
	return names
}

// Placement returns the quality of the plan, for people.
func (a *Answer) Placement(node func(name string) *usage.Node) *gangrequest.Placement {
	plan, tree := a.Plan, a.tree
	p := &gangrequest.Placement{
		Level: plan.Level, Domains: map[string][]string{}, Fewest: map[string]int{}, Quality: tree.Quality(plan.Nodes),
		Crossings: plan.Crossings, Exact: plan.Exact, Estimate: a.estimate(node), MessageBytes: int64(a.messageBytes), Model: plan.Chosen.Model,
		Chosen: plan.Chosen.String(),
	}
	for _, o := range plan.Others {
		p.Others = append(p.Others, o.Instead())
	}
	for depth := 1; depth < len(plan.Domains) && depth <= tree.Depth(); depth++ {
		level := tree.LevelName(depth)
		for _, domain := range plan.Domains[depth] {
			p.Domains[level] = append(p.Domains[level], tree.DomainName(depth, domain))
		}
		if depth < len(plan.Fewest) && plan.Fewest[depth] > 0 {
			p.Fewest[level] = plan.Fewest[depth]
		}
	}
	return p
}

// estimate computes the estimate without the devices of members that were bound before.
func (a *Answer) estimate(node func(name string) *usage.Node) gangrequest.Estimate {
	together := map[int]nvtopo.Mask{}
	for rank, n := range a.Plan.Nodes {
		together[n] |= a.Plan.Sets[rank]
	}
	most, ring := 0, int64(math.MaxInt64)
	for n, set := range together {
		most = max(most, set.Len())
		if set.Len() < 2 {
			continue
		}
		if u := node(a.tree.Name(n)); u == nil {
			ring = 0
		} else if accel := u.Accel(a.resource); accel == nil || accel.Tables == nil {
			ring = 0
		} else {
			ring = min(ring, accel.Tables.Ring(set))
		}
	}
	unknown := gangrequest.Millis(math.Inf(1))
	bytes := a.messageBytes
	e := gangrequest.Estimate{Ring: unknown, Tree: unknown, Other: unknown, Hierarchical: unknown}
	if c, known := a.tree.Compat(a.Plan.Nodes, bytes/1e6, fabric.BinaryUnits); known {
		e.Ring, e.Tree, e.Other = gangrequest.Millis(c.Ring), gangrequest.Millis(c.Tree), gangrequest.Millis(c.Other)
	}
	if ms, known := a.tree.Estimate(a.Plan.Nodes, most, ring, bytes); known {
		e.Hierarchical = gangrequest.Millis(ms)
	}
	return e
}
