// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of one search.
const (
	// DefaultSteps is how often a pod is tried on a node at most, some 0.1 ms each.
	DefaultSteps = 20_000
	// maxExact is the same while all sequences are tried.
	maxExact = 6_000
	// maxTogether is how many pods of one node are moved for one gain when not all sequences
	// are tried. A node of 8 GPUs seldom needs more to be empty.
	maxTogether = 4
)

// step is a move, with the free linked groups of the cluster after it.
type step struct {
	pod, to int
	gpus    []int
	value   int
}

// state is the cluster after some moves.
type state struct {
	p       *problem
	changed map[int]*place // nodes that are not as at first
	moved   []step
	spent   []int32 // disruptions, by budget
	value   int
}

func (p *problem) start() *state {
	return &state{p: p, spent: make([]int32, len(p.allowed)), value: p.before}
}

func (s *state) node(i int) *place {
	if n := s.changed[i]; n != nil {
		return n
	}
	return s.p.nodes[i]
}

// may reports whether a pod may be moved once those before are.
func (s *state) may(pod int) bool {
	if slices.ContainsFunc(s.moved, func(m step) bool { return m.pod == pod }) {
		return false
	}
	for _, b := range s.p.pods[pod].budgets {
		if s.spent[b] >= s.p.allowed[b] {
			return false
		}
	}
	return true
}

// move is the state once a pod is on a node; nil if it has no place there. A pod holds its GPUs until
// after its replacement is placed, so that on its node it gets others.
func (s *state) move(pod, to int) *state {
	s.p.steps--
	m := &s.p.pods[pod]
	source := s.node(m.node).without(pod)
	target := s.node(to)
	got, ok := s.p.fits(target, m)
	if !ok {
		return nil
	}
	out := &state{p: s.p, changed: maps.Clone(s.changed), spent: slices.Clone(s.spent), value: s.value}
	if out.changed == nil {
		out.changed = map[int]*place{}
	}
	out.value -= s.node(m.node).worth()
	gpus := target.indices(got.set)
	if to == m.node {
		target = source
	} else {
		out.value -= target.worth()
		out.changed[m.node] = source
		out.value += source.worth()
	}
	out.changed[to] = target.with(pod, got)
	out.value += out.changed[to].worth()
	for _, b := range m.budgets {
		out.spent[b]++
	}
	out.moved = append(slices.Clip(s.moved), step{pod: pod, to: to, gpus: gpus, value: out.value})
	return out
}

// better reports whether a state is better than another: more groups, or as many with fewer
// moves.
func (s *state) better(o *state) bool {
	return s.value > o.value || s.value == o.value && len(s.moved) < len(o.moved)
}

// freed are the nodes that are worth more than at first.
func (s *state) freed() (out []Freed) {
	for i, n := range s.p.nodes {
		if more := s.node(i).worth() - n.worth(); more > 0 {
			out = append(out, Freed{n.view.Name, more})
		}
	}
	return out
}

// search returns the best state that it finds.
func (p *problem) search() *state {
	first := p.start()
	if p.before >= p.ideal || len(p.pods) == 0 {
		p.proven = true
		return first
	}
	// The fast way first: what it finds is there if the exact way takes too long.
	best := p.byGain(first)
	// All sequences of two moves can be tried, or it is not worth to begin.
	if first := len(p.pods) * len(p.nodes); first*first <= 2*maxExact {
		p.steps = maxExact
		if exact, ok := p.all(p.start(), best); ok {
			p.proven, best = true, exact
		}
	}
	return best
}

// all tries all sequences of moves, shorter ones first, and returns the best state: none is
// better. ok is false if that takes too many steps. good is a state that is known: a sequence is
// not gone on with once it has the ideal, or as many moves as good, if that has the ideal.
func (p *problem) all(first, good *state) (best *state, ok bool) {
	best = first
	if good.better(best) {
		best = good
	}
	known := map[string]bool{}
	for level := []*state{first}; len(level) > 0; {
		if best.value >= p.ideal && len(best.moved) <= len(level[0].moved)+1 {
			return best, true
		}
		if len(level[0].moved) >= p.maxMoves {
			return best, true
		}
		var next []*state
		for _, s := range level {
			for pod := range p.pods {
				if !s.may(pod) {
					continue
				}
				for to := range p.nodes {
					if p.steps <= 0 {
						return nil, false
					}
					out := s.move(pod, to)
					if out == nil {
						continue
					}
					if key := out.key(); !known[key] {
						known[key] = true
						next = append(next, out)
						if out.better(best) {
							best = out
						}
					}
				}
			}
		}
		level = next
	}
	return best, true
}

// key is equal for states from which the same moves lead to the same: the same pods are moved,
// to the same GPUs.
func (s *state) key() string {
	moved := slices.Clone(s.moved)
	slices.SortFunc(moved, func(a, b step) int { return cmp.Compare(a.pod, b.pod) })
	var b strings.Builder
	for _, m := range moved {
		fmt.Fprintf(&b, "%d:%d:%v ", m.pod, m.to, m.gpus)
	}
	return b.String()
}
