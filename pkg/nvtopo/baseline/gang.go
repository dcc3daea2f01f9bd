// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// GangRule chooses the nodes of a gang of equal pods by the number of free GPUs.
type GangRule interface {
	Name() string
	// Place returns the node of each pod, by its number in the tree, and false if the rule finds no room.
	// free is the number of free GPUs of each node.
	Place(t *fabric.Tree, free []int, gpus, pods int) ([]int, bool)
}

// gangRule is a rule from a function that is called only if there are enough GPUs.
type gangRule struct {
	name  string
	place func(p *gangProblem) []int
}

func (r gangRule) Name() string { return r.name }

func (r gangRule) Place(t *fabric.Tree, free []int, gpus, pods int) ([]int, bool) {
	if gpus < 1 || pods < 1 {
		return nil, pods == 0
	}
	p := newGangProblem(t, free, gpus, pods)
	if p.slots[0][0] < pods {
		return nil, false
	}
	return r.place(p), true
}

// gangProblem holds the slots of domains: free GPUs divided by the GPUs of a pod on each node, summed up.
// Nodes are the depth below the innermost level.
type gangProblem struct {
	t          *fabric.Tree
	free       []int
	gpus, pods int
	slots      [][]int // by depth, then domain or node
}

func newGangProblem(t *fabric.Tree, free []int, gpus, pods int) *gangProblem {
	p := &gangProblem{t: t, free: free, gpus: gpus, pods: pods, slots: make([][]int, t.Depth()+2)}
	nodes := make([]int, t.Len())
	for n := range nodes {
		nodes[n] = free[n] / gpus
	}
	p.slots[t.Depth()+1] = nodes
	for d := t.Depth(); d >= 0; d-- {
		p.slots[d] = make([]int, len(t.Domains(d)))
		for n, s := range nodes {
			p.slots[d][t.DomainOf(d, n)] += s
		}
	}
	return p
}

// domain is a domain of a depth, or a node.
type domain struct{ depth, at int }

func (p *gangProblem) count(d domain) int { return p.slots[d.depth][d.at] }

// nodes returns the range of nodes of a domain.
func (p *gangProblem) nodes(d domain) (first, end int) {
	if d.depth > p.t.Depth() {
		return d.at, d.at + 1
	}
	dom := &p.t.Domains(d.depth)[d.at]
	return dom.First, dom.End
}

// children appends the domains just inside one.
func (p *gangProblem) children(d domain, into []domain) []domain {
	first, end := p.nodes(d)
	if first == end {
		return into
	}
	if d.depth < p.t.Depth() {
		first, end = p.t.DomainOf(d.depth+1, first), p.t.DomainOf(d.depth+1, end-1)+1
	}
	for i := first; i < end; i++ {
		into = append(into, domain{d.depth + 1, i})
	}
	return into
}

// tightest returns the domain of a depth that holds all pods with the fewest slots.
func (p *gangProblem) tightest(depth int) (domain, bool) {
	best := -1
	for i, s := range p.slots[depth] {
		if s >= p.pods && (best < 0 || s < p.slots[depth][best]) {
			best = i
		}
	}
	return domain{depth, best}, best >= 0
}

// mostFirst orders domains by their slots.
func (p *gangProblem) mostFirst(ds []domain) {
	slices.SortStableFunc(ds, func(a, b domain) int { return cmp.Compare(p.count(b), p.count(a)) })
}

// seats assigns a number of pods to nodes in the given order.
func (p *gangProblem) seats(nodes []int) []int {
	out := make([]int, 0, p.pods)
	for _, n := range nodes {
		for range p.slots[p.t.Depth()+1][n] {
			if len(out) == p.pods {
				return out
			}
			out = append(out, n)
		}
	}
	return out
}

// FirstFit takes the nodes in the given order, and fills each.
func FirstFit(order []int) GangRule {
	return gangRule{"first-fit", func(p *gangProblem) []int { return p.seats(order) }}
}

// Kueue is Topology Aware Scheduling with the innermost level preferred: the domain with the fewest slots
// that suffice, else a level further out; of the outermost level several, most slots first and the last
// one a best fit. Then inwards level by level, where the children of all chosen domains are one pool.
// Source: Kueue, tas_flavor_snapshot.go, BestFit.
func Kueue() GangRule {
	return gangRule{"kueue", func(p *gangProblem) []int {
		var chosen []domain
		depth := p.t.Depth()
		for ; depth > 0; depth-- {
			if d, ok := p.tightest(depth); ok {
				chosen = []domain{d}
				break
			}
		}
		if chosen == nil {
			depth, chosen = 1, p.bestFit(p.children(domain{}, nil))
		}
		for ; depth <= p.t.Depth(); depth++ {
			var pool []domain
			for _, d := range chosen {
				pool = p.children(d, pool)
			}
			chosen = p.bestFit(pool)
		}
		nodes := make([]int, len(chosen))
		for i, d := range chosen {
			nodes[i] = d.at
		}
		return p.seats(nodes)
	}}
}

// bestFit takes domains with most slots first; the last one is that with the fewest slots that suffice.
// It reorders them.
func (p *gangProblem) bestFit(ds []domain) []domain {
	p.mostFirst(ds)
	left := p.pods
	for i := range ds {
		if p.count(ds[i]) < left {
			left -= p.count(ds[i])
			continue
		}
		last := i
		for j := i + 1; j < len(ds) && p.count(ds[j]) >= left; j++ {
			if p.count(ds[j]) < p.count(ds[last]) {
				last = j
			}
		}
		ds[i] = ds[last]
		return ds[:i+1]
	}
	return ds
}

// Koordinator takes the domain with the fewest slots that suffice of the innermost level that
// has one; in it the domain with most slots first, level by level, even for a rest of one pod.
// Source: Koordinator, network topology solver of the coscheduling plugin.
func Koordinator() GangRule {
	return gangRule{"koordinator", func(p *gangProblem) []int {
		for depth := p.t.Depth(); ; depth-- {
			if d, ok := p.tightest(depth); ok {
				return p.seats(p.descend(d, p.pods, nil))
			}
		}
	}}
}

// descend appends the nodes that pods fill in a domain.
func (p *gangProblem) descend(d domain, pods int, into []int) []int {
	if d.depth > p.t.Depth() {
		return append(into, d.at)
	}
	inside := p.children(d, nil)
	p.mostFirst(inside)
	for _, c := range inside {
		take := min(pods, p.count(c))
		if take == 0 {
			break
		}
		into = p.descend(c, take, into)
		pods -= take
	}
	return into
}

// Volcano goes from the innermost level outwards. Of the domains whose free GPUs are enough in
// sum it tries the fullest first: pod by pod, to the node with the fewest GPUs that suffice.
// Source: Volcano, allocate action and plugins network-topology-aware and binpack.
func Volcano() GangRule {
	return gangRule{"volcano", func(p *gangProblem) []int {
		for depth := p.t.Depth(); ; depth-- {
			for _, d := range p.fullestFirst(depth) {
				if p.count(d) >= p.pods {
					return p.seats(p.tightestNodes(d))
				}
			}
		}
	}}
}

// fullestFirst returns the domains of a depth with enough free GPUs in sum.
func (p *gangProblem) fullestFirst(depth int) []domain {
	idle := make([]int, len(p.slots[depth]))
	for n, free := range p.free {
		idle[p.t.DomainOf(depth, n)] += free
	}
	var out []domain
	for i, n := range idle {
		if n >= p.pods*p.gpus {
			out = append(out, domain{depth, i})
		}
	}
	slices.SortStableFunc(out, func(a, b domain) int { return cmp.Compare(idle[a.at], idle[b.at]) })
	return out
}

// tightestNodes returns the nodes of a domain, fewest free GPUs first: a node that has taken a pod is the
// tightest for the next while it has room.
func (p *gangProblem) tightestNodes(d domain) []int {
	first, end := p.nodes(d)
	out := make([]int, 0, end-first)
	for n := first; n < end; n++ {
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(p.free[a], p.free[b]) })
	return out
}
