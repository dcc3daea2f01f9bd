// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

const (
	// maxUncertain limits the releases in doubt at one decision; all their combinations are tried.
	maxUncertain = 10
	// messageBytes is the size of the all-reduce by which nodes are compared: the demo's pods name none.
	messageBytes = 1_000_000_000
)

// placement is one pod's GPUs and the time in which it held them.
type placement struct {
	pod        string
	node       string
	set        nvtopo.Mask
	count      int // GPUs requested
	constraint nvtopo.Constraint
	allowed    func(*nvtopo.Graph) nvtopo.Mask // GPUs of a machine that the pod accepts at all
	assumed    time.Time                       // when the scheduler decided
	// A pod that ended gave its GPUs back somewhere between releaseFrom, just
	// before the API server was told, and releaseBy, when the scheduler had
	// provably seen it. Both are zero for a pod that still runs.
	releaseFrom, releaseBy time.Time
}

func (p *placement) ended() bool { return !p.releaseFrom.IsZero() }

// verdict is the result of the check of one placement.
type verdict struct {
	best     nvtopo.Mask // the brute force's choice on the pod's node
	possible bool        // a best set exists
	nodes    []string    // those that the brute force allows, by name
	problem  string      // empty if the placement is right
}

// check compares every placement with the brute force, node and GPUs, and all with each other. graphs
// maps node names to graphs; verdicts come in the order of ps.
//
// The free GPUs at a decision follow from the order of the decisions, which one scheduler makes one after
// the other and stamps. Where a pod was just ending, the scheduler may or may not have known: then the
// placement must be best for one of the possible states.
func check(graphs map[string]*nvtopo.Graph, ps []placement) []verdict {
	f := newFleet(graphs)
	out := make([]verdict, len(ps))
	for i := range ps {
		out[i] = f.judge(&ps[i], ps)
	}
	return out
}

// fleet holds the nodes with the brute force's cached results for each.
type fleet struct {
	names   []string // in order
	graphs  map[string]*nvtopo.Graph
	oracles map[string]*oracle.Oracle
}

func newFleet(graphs map[string]*nvtopo.Graph) *fleet {
	f := &fleet{names: slices.Sorted(maps.Keys(graphs)), graphs: graphs, oracles: map[string]*oracle.Oracle{}}
	for name, g := range graphs {
		f.oracles[name] = oracle.New(g)
	}
	return f
}

func (f *fleet) judge(p *placement, all []placement) verdict {
	if f.graphs[p.node] == nil {
		return verdict{problem: fmt.Sprintf("it is on node %s, which has no graph", p.node)}
	}
	if p.set.Len() != p.count {
		return verdict{problem: fmt.Sprintf("it got %d GPUs and asked for %d", p.set.Len(), p.count)}
	}
	holders, uncertain, problem := holdersAt(p, all)
	if problem != "" {
		return verdict{problem: problem}
	}
	// The state with every ending pod gone is reported when none matches: it is
	// the one that offers most.
	var last verdict
	for subset := range 1 << len(uncertain) {
		there := slices.Clone(holders)
		for j, u := range uncertain {
			if subset>>j&1 == 0 {
				there = append(there, u)
			}
		}
		if last = f.judgeBeside(p, there); last.problem == "" {
			break
		}
	}
	return last
}

// judgeBeside judges a placement as if exactly these pods ran at the time.
func (f *fleet) judgeBeside(p *placement, holders []*placement) (v verdict) {
	nodes := make([]oracle.Node, len(f.names))
	at := map[string]*oracle.Node{}
	for i, name := range f.names {
		g := f.graphs[name]
		nodes[i] = oracle.Node{Oracle: f.oracles[name], Whole: g.Healthy(), Free: g.Healthy(), Refused: ^p.allowed(g)}
		at[name] = &nodes[i]
	}
	for _, q := range holders {
		if n := at[q.node]; n != nil {
			n.Free &^= q.set
			n.Pods = append(n.Pods, q.count)
		}
	}
	choices := oracle.Across(nodes, p.count, p.constraint, messageBytes)
	for _, i := range oracle.Allowed(choices) {
		v.nodes = append(v.nodes, f.names[i])
	}
	own := choices[slices.Index(f.names, p.node)]
	v.best, v.possible = own.Set, own.Found
	switch {
	case !own.Found || own.Set != p.set:
		v.problem = describeLoss(f.oracles[p.node], f.graphs[p.node], at[p.node].Free, p, own.Set, own.Found)
	case !slices.Contains(v.nodes, p.node):
		v.problem = fmt.Sprintf("node %s %s; the order allows %s", p.node, shortcoming(choices, &own), strings.Join(v.nodes, ", "))
	}
	return v
}

// shortcoming returns why a choice is not one of those that the order allows.
func shortcoming(choices []oracle.Choice, own *oracle.Choice) string {
	switch {
	case own.Score != nil:
		best := choices[oracle.Allowed(choices)[0]]
		return fmt.Sprintf("has %s points and %d GPUs left, where another has %s and %d", own.Score.FloatString(3), own.Left, best.Score.FloatString(3), best.Left)
	case own.Reserved:
		return "is left to larger pods"
	case own.Set.Len() == 1:
		return "has links that others can use"
	}
	return "has slower links"
}

// holdersAt returns the pods that certainly had GPUs when p was decided, and those that were just ending.
// A GPU of p that another pod certainly held is a problem.
func holdersAt(p *placement, all []placement) (certain, uncertain []*placement, problem string) {
	for i := range all {
		q := &all[i]
		if q.pod == p.pod || !before(q, p) {
			continue
		}
		switch {
		case !q.ended() || p.assumed.Before(q.releaseFrom):
			if q.node == p.node && q.set&p.set != 0 {
				return nil, nil, fmt.Sprintf("GPU %v of node %s belonged to pod %s at the same time", (q.set & p.set).Positions(), p.node, q.pod)
			}
			certain = append(certain, q)
		case p.assumed.Before(q.releaseBy):
			uncertain = append(uncertain, q)
		}
	}
	if len(uncertain) > maxUncertain {
		return nil, nil, fmt.Sprintf("%d pods were ending at the time, too many to check", len(uncertain))
	}
	return certain, uncertain, ""
}

// before orders decisions by their stamps; equal stamps by name, so that two
// pods on one GPU are noticed in any case.
func before(q, p *placement) bool {
	return cmp.Or(q.assumed.Compare(p.assumed), cmp.Compare(q.pod, p.pod)) < 0
}

func describeLoss(o *oracle.Oracle, g *nvtopo.Graph, free nvtopo.Mask, p *placement, best nvtopo.Mask, possible bool) string {
	switch {
	case p.set&^p.allowed(g) != 0:
		return fmt.Sprintf("GPU %v of node %s is not one it accepts", (p.set &^ p.allowed(g)).Positions(), p.node)
	case p.set&^free != 0:
		return fmt.Sprintf("GPU %v of node %s was not free", (p.set &^ free).Positions(), p.node)
	case !o.Permits(p.set, p.constraint):
		return fmt.Sprintf("GPUs %v of node %s do not satisfy its constraints", p.set.Positions(), p.node)
	case !possible:
		return "the brute force finds no set at all"
	}
	_, got := oracle.Ring(g, p.set)
	_, had := oracle.Ring(g, best)
	return fmt.Sprintf("GPUs %v (%g GB/s) were better than %v (%g GB/s), free were %v",
		best.Positions(), nvtopo.GBps(had), p.set.Positions(), nvtopo.GBps(got), free.Positions())
}
