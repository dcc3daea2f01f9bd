// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// maxUncertain bounds the releases in doubt at one decision; all their
// combinations are tried.
const maxUncertain = 10

// placement is one pod's GPUs and how long they were its own.
type placement struct {
	pod        string
	node       string
	set        nvtopo.Mask
	count      int // GPUs asked for
	constraint nvtopo.Constraint
	allowed    nvtopo.Mask // GPUs the pod accepts at all
	assumed    time.Time   // when the scheduler decided
	// A pod that ended gave its GPUs back somewhere between releaseFrom, just
	// before the API server was told, and releaseBy, when the scheduler had
	// provably seen it. Both are zero for a pod that still runs.
	releaseFrom, releaseBy time.Time
}

func (p *placement) ended() bool { return !p.releaseFrom.IsZero() }

// verdict is what the check found about one placement.
type verdict struct {
	best     nvtopo.Mask // what the brute force chooses
	possible bool        // there is a best at all
	problem  string      // empty when all is well
}

// check compares every placement with the brute force, and all with each
// other. graphs maps node names to graphs; verdicts come in the order of ps.
//
// What was free at a decision follows from the order of the decisions, which
// one scheduler makes one after the other and stamps. Where a pod was just
// ending, the scheduler may or may not have known: then the placement must be
// best for one of the possible states.
func check(graphs map[string]*nvtopo.Graph, ps []placement) []verdict {
	oracles := map[string]*oracle.Oracle{}
	out := make([]verdict, len(ps))
	for i := range ps {
		p := &ps[i]
		g, ok := graphs[p.node]
		if !ok {
			out[i].problem = fmt.Sprintf("it is on node %s, which has no graph", p.node)
			continue
		}
		if oracles[p.node] == nil {
			oracles[p.node] = oracle.New(g)
		}
		out[i] = judge(oracles[p.node], g, p, ps)
	}
	return out
}

func judge(o *oracle.Oracle, g *nvtopo.Graph, p *placement, all []placement) verdict {
	if p.set.Len() != p.count {
		return verdict{problem: fmt.Sprintf("it got %d GPUs and asked for %d", p.set.Len(), p.count)}
	}
	taken, uncertain, problem := takenAt(p, all)
	if problem != "" {
		return verdict{problem: problem}
	}
	// The state with every ending pod gone is reported when none matches: it is
	// the one that offers most.
	var last verdict
	for subset := range 1 << len(uncertain) {
		free := g.Healthy() &^ taken
		for j, u := range uncertain {
			if subset>>j&1 == 0 {
				free &^= u
			}
		}
		last = verdict{}
		last.best, last.possible = o.Best(free, p.allowed, p.count, p.constraint)
		if last.possible && last.best == p.set {
			return last
		}
		last.problem = describeLoss(o, g, free, p, last.best, last.possible)
	}
	return last
}

// takenAt returns the GPUs of p's node that others certainly held when p was
// decided, and for each pod that was just ending, what it held. A GPU of p's
// that another certainly held is a problem.
func takenAt(p *placement, all []placement) (taken nvtopo.Mask, uncertain []nvtopo.Mask, problem string) {
	for i := range all {
		q := &all[i]
		if q.pod == p.pod || q.node != p.node || !before(q, p) {
			continue
		}
		switch {
		case !q.ended() || p.assumed.Before(q.releaseFrom):
			if q.set&p.set != 0 {
				return 0, nil, fmt.Sprintf("GPU %v of node %s belonged to pod %s at the same time", (q.set & p.set).Positions(), p.node, q.pod)
			}
			taken |= q.set
		case p.assumed.Before(q.releaseBy):
			uncertain = append(uncertain, q.set)
		}
	}
	if len(uncertain) > maxUncertain {
		return 0, nil, fmt.Sprintf("%d pods of node %s were ending at the time, too many to check", len(uncertain), p.node)
	}
	return taken, uncertain, ""
}

// before orders decisions by their stamps; equal stamps by name, so that two
// pods on one GPU are noticed in any case.
func before(q, p *placement) bool {
	return cmp.Or(q.assumed.Compare(p.assumed), cmp.Compare(q.pod, p.pod)) < 0
}

func describeLoss(o *oracle.Oracle, g *nvtopo.Graph, free nvtopo.Mask, p *placement, best nvtopo.Mask, possible bool) string {
	switch {
	case p.set&^p.allowed != 0:
		return fmt.Sprintf("GPU %v of node %s is not one it accepts", (p.set &^ p.allowed).Positions(), p.node)
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
