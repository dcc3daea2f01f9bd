// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The brute force works on lists of node ids, tries every combination of hints one
// after the other and every concrete set of devices.

type bruteHint struct {
	nodes []int // ascending; nil: no preference
	good  bool
}

type bruteMachine struct {
	policy    Policy
	podScope  bool
	closest   bool
	own       bool // hints for devices name only nodes that have such devices
	ids       []int
	distances map[[2]int]int
	numa      [][]int // by resource, by device
	all       []nvtopo.Mask
}

func subsetsOf(ids []int) [][]int {
	var out [][]int
	for bitsSet := 1; bitsSet < 1<<len(ids); bitsSet++ {
		var s []int
		for i, id := range ids {
			if bitsSet>>i&1 != 0 {
				s = append(s, id)
			}
		}
		out = append(out, s)
	}
	return out
}

func (b *bruteMachine) deviceHints(r, n int, free, reuse nvtopo.Mask) []bruteHint {
	known := false
	for d := range b.all[r].All() {
		known = known || b.numa[r][d] >= 0
	}
	if !known {
		return []bruteHint{{nil, true}}
	}
	count := func(set nvtopo.Mask, nodes []int) int {
		c := 0
		for d := range set.All() {
			if slices.Contains(nodes, b.numa[r][d]) {
				c++
			}
		}
		return c
	}
	ids := b.ids
	if b.own {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return count(b.all[r], []int{id}) == 0 })
	}
	fewest := len(ids)
	var out []bruteHint
	for _, nodes := range subsetsOf(ids) {
		if count(b.all[r], nodes) >= n {
			fewest = min(fewest, len(nodes))
		}
		inside := true
		for d := range reuse.All() {
			if b.numa[r][d] >= 0 && !slices.Contains(nodes, b.numa[r][d]) {
				inside = false
			}
		}
		if inside && count(free|reuse, nodes) >= n && (free|reuse).Len() >= n {
			out = append(out, bruteHint{nodes: nodes})
		}
	}
	for i := range out {
		out[i].good = len(out[i].nodes) == fewest
	}
	if len(out) == 0 {
		return []bruteHint{{nil, false}}
	}
	return out
}

// better reports whether kubelet would replace current by candidate.
func (b *bruteMachine) better(candidate, current bruteHint, width int) bool {
	if candidate.good != current.good {
		return candidate.good
	}
	x, y := len(candidate.nodes), len(current.nodes)
	if !candidate.good {
		switch {
		case y > width:
		case y == width && x != width:
			return false
		case y < width && x > width:
			return false
		case y < width && x != y:
			return x > y
		}
	}
	if x != y {
		return x < y
	}
	if b.closest && b.policy != PolicySingleNUMANode {
		if d, e := b.mean(candidate.nodes), b.mean(current.nodes); d != e {
			return d < e
		}
	}
	for i := x - 1; i >= 0; i-- {
		if candidate.nodes[i] != current.nodes[i] {
			return candidate.nodes[i] < current.nodes[i]
		}
	}
	return false
}

func (b *bruteMachine) mean(nodes []int) float64 {
	sum := 0
	for _, i := range nodes {
		for _, j := range nodes {
			sum += b.distances[[2]int{i, j}]
		}
	}
	return float64(sum) / float64(len(nodes)*len(nodes))
}

func (b *bruteMachine) merge(providers [][]bruteHint) (bruteHint, bool) {
	if b.policy == PolicySingleNUMANode {
		for i := range providers {
			providers[i] = slices.DeleteFunc(slices.Clone(providers[i]), func(h bruteHint) bool {
				return !h.good || h.nodes != nil && len(h.nodes) != 1
			})
		}
	}
	width := 0
	for _, hints := range providers {
		fewest := 0
		for _, h := range hints {
			if h.nodes != nil && (fewest == 0 || len(h.nodes) < fewest) {
				fewest = len(h.nodes)
			}
		}
		width = max(width, fewest)
	}
	best, found := bruteHint{nodes: b.ids}, false
	var try func(i int, chosen []bruteHint)
	try = func(i int, chosen []bruteHint) {
		if i < len(providers) {
			for _, h := range providers[i] {
				try(i+1, append(slices.Clone(chosen), h))
			}
			return
		}
		result := bruteHint{nodes: b.ids, good: true}
		var first []int
		for _, h := range chosen {
			result.good = result.good && h.good
			if h.nodes == nil {
				continue
			}
			if first == nil {
				first = h.nodes
			}
			result.good = result.good && slices.Equal(first, h.nodes)
			result.nodes = slices.DeleteFunc(slices.Clone(result.nodes), func(n int) bool { return !slices.Contains(h.nodes, n) })
		}
		if len(result.nodes) > 0 && (!found || b.better(result, best, width)) {
			best, found = result, true
		}
	}
	try(0, nil)
	if b.policy == PolicySingleNUMANode && slices.Equal(best.nodes, b.ids) {
		best.nodes = nil
	}
	return best, best.good || b.policy == PolicyBestEffort
}

type bruteState struct{ free, reuse []nvtopo.Mask }

func (b *bruteMachine) hint(s bruteState, c *Container, reuse bool) (bruteHint, bool) {
	var providers [][]bruteHint
	for r := range b.all {
		if c.Devices[r] > 0 {
			var kept nvtopo.Mask
			if reuse {
				kept = s.reuse[r]
			}
			providers = append(providers, b.deviceHints(r, c.Devices[r], s.free[r], kept))
		}
	}
	return b.merge(providers)
}

// admit tries every set of devices that kubelet could be made to take.
func (b *bruteMachine) admit(s bruteState, pod *Pod, budget []nvtopo.Mask, i, r int, h bruteHint) bool {
	if i == len(pod.Containers) {
		return true
	}
	c := &pod.Containers[i]
	if r == 0 && b.policy != PolicyNone && !b.podScope {
		var ok bool
		if h, ok = b.hint(s, c, true); !ok {
			return false
		}
	}
	if r == len(b.all) {
		return b.admit(s, pod, budget, i+1, 0, h)
	}
	n := c.Devices[r]
	if n == 0 {
		return b.admit(s, pod, budget, i, r+1, h)
	}
	reuse := s.reuse[r]
	if reuse.Len() > n { // kubelet's dice
		if c.Kind == Init {
			return b.admit(s, pod, budget, i, r+1, h)
		}
		for part := range subsets(reuse, n) {
			next := bruteState{s.free, slices.Clone(s.reuse)}
			next.reuse[r] &^= part
			if !b.admit(next, pod, budget, i, r+1, h) {
				return false
			}
		}
		return true
	}
	need := n - reuse.Len()
	if s.free[r].Len() < need {
		return false
	}
	aligned, known := nvtopo.Mask(0), false
	for d := range b.all[r].All() {
		known = known || b.numa[r][d] >= 0
		if s.free[r].Has(d) && slices.Contains(h.nodes, b.numa[r][d]) {
			aligned |= 1 << d
		}
	}
	if h.nodes == nil || b.policy == PolicyNone || !known {
		aligned = 0
	}
	for fresh := range subsets(s.free[r], need) {
		honoured := fresh&^aligned == 0 || aligned&^fresh == 0
		if need < aligned.Len() {
			honoured = fresh&^aligned == 0
		} else if aligned&^fresh != 0 {
			honoured = false
		}
		if !honoured || fresh&^budget[r] != 0 {
			continue
		}
		next := bruteState{slices.Clone(s.free), slices.Clone(s.reuse)}
		rest := slices.Clone(budget)
		next.free[r] &^= fresh
		rest[r] &^= fresh
		next.reuse[r] = 0
		if c.Kind == Init {
			next.reuse[r] = reuse | fresh
		}
		if b.admit(next, pod, rest, i, r+1, h) {
			return true
		}
	}
	return false
}

func subsets(of nvtopo.Mask, n int) func(func(nvtopo.Mask) bool) {
	return func(yield func(nvtopo.Mask) bool) {
		for s := of; ; s = (s - 1) & of {
			if s.Len() == n && !yield(s) || s == 0 {
				return
			}
		}
	}
}
