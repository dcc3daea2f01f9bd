// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// maxPacked is the largest machine whose packings are exact: 2^16 sets.
const maxPacked = 16

// packing holds, for each set of GPUs of a machine, its best division into members: into disjoint sets of
// k GPUs that each pass the constraint, and keep if it is not nil.
type packing struct {
	k     int
	sets  [][]member // sets that pass, by their lowest GPU; best band first
	worst []uint8    // by set: the worst band of its best division; noDivision if there is none
}

// member is a set of GPUs that one member may get.
type member struct {
	set  nvtopo.Mask
	band uint8
}

const noDivision = nodeindex.Bands

// newPacking tries all sets of k GPUs, and divides a set by each of them that has its lowest GPU. About
// 0.1 ms for 8 GPUs; for 16 up to some tens of ms, once per class of machines.
func newPacking(t *nvtopo.Tables, k int, con nvtopo.Constraint, keep func(nvtopo.Mask) bool) *packing {
	n := t.Graph().Len()
	p := &packing{k: k, sets: make([][]member, n), worst: make([]uint8, 1<<n)}
	for s := 1; s < len(p.worst); s++ {
		set := nvtopo.Mask(s)
		p.worst[s] = noDivision
		if set.Len() != k || keep != nil && !keep(set) {
			continue
		}
		if _, ok := t.Pick(set, set, k, con); ok {
			band := uint8(nodeindex.BandOf(t, set))
			p.worst[s] = band
			p.sets[set.First()] = append(p.sets[set.First()], member{set, band})
		}
	}
	for _, list := range p.sets {
		slices.SortFunc(list, func(a, b member) int {
			switch {
			case a.band != b.band:
				return cmp.Compare(a.band, b.band)
			case a.set == b.set:
				return 0
			case a.set.LexLess(b.set):
				return -1
			}
			return 1
		})
	}
	for s := 1; s < len(p.worst); s++ {
		if set := nvtopo.Mask(s); set.Len() > k && set.Len()%k == 0 {
			p.worst[s] = p.divide(set)
		}
	}
	return p
}

func (p *packing) divide(set nvtopo.Mask) uint8 {
	best := uint8(noDivision)
	for _, m := range p.sets[set.First()] {
		if m.band >= best {
			break
		}
		if m.set&^set == 0 {
			best = min(best, max(m.band, p.worst[set&^m.set]))
		}
	}
	return best
}

// members returns a set's best division: from the lowest GPU on, each member has the best band that
// leaves the rest as good as the whole.
func (p *packing) members(set nvtopo.Mask) []nvtopo.Mask {
	var out []nvtopo.Mask
	limit := p.worst[set]
	for set != 0 {
		for _, m := range p.sets[set.First()] {
			if m.set&^set == 0 && (m.set == set || p.worst[set&^m.set] <= limit) {
				out = append(out, m.set)
				set &^= m.set
				break
			}
		}
	}
	return out
}

// best returns, for each number of members, the GPUs of free to divide among them: in the best band, then
// with the greatest residual value, then the lowest GPUs.
func (p *packing) best(t *nvtopo.Tables, free, allowed nvtopo.Mask) []nvtopo.Mask {
	usable := free & allowed
	out := make([]nvtopo.Mask, usable.Len()/p.k)
	left := make([]int64, len(out))
	for s := usable; s != 0; s = (s - 1) & usable {
		band := p.worst[s]
		if band == noDivision {
			continue
		}
		at := s.Len()/p.k - 1
		if old := out[at]; old != 0 {
			if band > p.worst[old] {
				continue
			}
			r := t.Residual(free &^ s)
			if band == p.worst[old] && (r < left[at] || r == left[at] && old.LexLess(s)) {
				continue
			}
			out[at], left[at] = s, r
			continue
		}
		out[at], left[at] = s, t.Residual(free&^s)
	}
	for n, s := range out {
		if s == 0 {
			return out[:n]
		}
	}
	return out
}
