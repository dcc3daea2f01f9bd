// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"
)

// byGain moves, again and again, some pods of one node that gain the most groups a move, until
// nothing gains any.
func (p *problem) byGain(s *state) *state {
	for s.value < p.ideal && len(s.moved) < p.maxMoves && p.steps > 0 {
		next := p.nextGain(s)
		if next == nil {
			break
		}
		s = next
	}
	return s
}

// removal is some pods of one node that could go, and what the node is worth more then.
type removal struct {
	pods []int
	gain int
}

// compare is negative if a promises more groups a move than b.
func (a *removal) compare(b *removal) int {
	return cmp.Or(
		cmp.Compare(b.gain*len(a.pods), a.gain*len(b.pods)),
		cmp.Compare(len(a.pods), len(b.pods)),
		slices.Compare(a.pods, b.pods))
}

// nextGain is the state after the removal that gains the most a move; nil if none gains.
func (p *problem) nextGain(s *state) *state {
	var all []removal
	for i := range p.nodes {
		all = append(all, p.removals(s, i)...)
	}
	slices.SortFunc(all, func(a, b removal) int { return a.compare(&b) })
	var best *state
	for i := range all {
		r := &all[i]
		if best != nil && r.gain*gained(s, best) <= (best.value-s.value)*len(r.pods) {
			break // it cannot gain more a move, even if its pods cost nothing elsewhere
		}
		if p.steps <= 0 {
			break
		}
		out := p.remove(s, r)
		if out == nil || out.value <= s.value {
			continue
		}
		if best == nil || (out.value-s.value)*gained(s, best) > (best.value-s.value)*gained(s, out) {
			best = out
		}
	}
	return best
}

// gained is how many moves one state has more than another.
func gained(before, after *state) int { return len(after.moved) - len(before.moved) }

// removals are the smallest sets of a node's pods that make it worth more when they go, of pods
// that may go now.
func (p *problem) removals(s *state, node int) []removal {
	n := s.node(node)
	all, ok := p.removable[n]
	if !ok {
		all = p.findRemovals(n)
		p.removable[n] = all
	}
	most := p.maxMoves - len(s.moved)
	var out []removal
	for _, r := range all {
		if len(r.pods) <= most && !slices.ContainsFunc(r.pods, func(pod int) bool { return !s.may(pod) }) {
			out = append(out, r)
		}
	}
	return out
}

// findRemovals tries the pods of a node, smaller sets first.
func (p *problem) findRemovals(n *place) (out []removal) {
	if !n.view.Open() {
		return nil
	}
	var choose func(at *place, from int, pods []int)
	choose = func(at *place, from int, pods []int) {
		if gain := at.worth() - n.worth(); gain > 0 {
			out = append(out, removal{slices.Clone(pods), gain})
			return
		}
		left := maxTogether - len(pods)
		if left == 0 || p.size*(n.worth()+1) > at.free()+p.largest(n.pods[from:], left) {
			return // not even the largest of the others make room for one group more
		}
		for i := from; i < len(n.pods); i++ {
			choose(at.without(n.pods[i]), i+1, append(pods, n.pods[i]))
		}
	}
	choose(n, 0, nil)
	return out
}

// largest is how many GPUs the largest of some pods have, so many of them.
func (p *problem) largest(pods []int, most int) (gpus int) {
	sizes := make([]int, len(pods))
	for i, pod := range pods {
		sizes[i] = len(p.pods[pod].view.GPUs)
	}
	slices.Sort(sizes)
	for _, n := range sizes[max(0, len(sizes)-most):] {
		gpus += n
	}
	return gpus
}

// remove moves the pods of a removal, the largest first, each to the node where it costs the
// fewest groups, and of these to the one with the fewest free GPUs; nil if one has no place.
func (p *problem) remove(s *state, r *removal) *state {
	pods := slices.Clone(r.pods)
	slices.SortStableFunc(pods, func(a, b int) int { return cmp.Compare(len(p.pods[b].view.GPUs), len(p.pods[a].view.GPUs)) })
	for _, pod := range pods {
		if !s.may(pod) { // another of its budget went just now
			return nil
		}
		if s = p.cheapest(s, pod); s == nil {
			return nil
		}
	}
	return s
}

// cheapest moves a pod to the node where it costs the fewest groups.
func (p *problem) cheapest(s *state, pod int) (best *state) {
	m := &p.pods[pod]
	home := s.node(m.node)
	most := s.value - home.worth() + home.without(pod).worth() // if it costs nothing elsewhere
	for _, to := range p.tightest(s, m) {
		if p.steps <= 0 {
			break
		}
		if out := s.move(pod, to); out != nil && (best == nil || out.value > best.value) {
			if best = out; out.value >= most {
				break
			}
		}
	}
	return best
}

// tightest are the other nodes of the model with as many free GPUs as a pod has, those with the fewest first.
func (p *problem) tightest(s *state, m *movable) []int {
	var out []int
	free := make([]int, len(p.nodes))
	for i := range p.nodes {
		n := s.node(i)
		if i == m.node || !n.view.Open() || n.view.Model != p.nodes[m.node].view.Model {
			continue
		}
		if free[i] = n.free(); free[i] >= len(m.view.GPUs) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(free[a], free[b]) })
	return out
}
