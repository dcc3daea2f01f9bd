// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ranks holds the ranks given to members so far.
type ranks struct {
	of    map[*v1.Pod]int
	taken map[int]bool
	bases map[seat]int // group, as a seat without index -> the rank of its index 0
	next  int          // above the rank of the neighbour before
}

// rank gives every live member its own rank. They are in order.
//
// A member with a node keeps the rank written on it. Another gets that of its index in its group, so that
// the ranks are those that the job itself uses, and a gap stays free for a missing member. Members without
// an index follow their neighbours; those with an index that another has come last.
func (m *Members) rank(live []identity) {
	r := &ranks{of: make(map[*v1.Pod]int, len(live)), taken: make(map[int]bool, len(live)), bases: map[seat]int{}}
	r.keep(live, m.Ended)
	var late []identity
	for _, id := range live {
		if !r.give(id) {
			late = append(late, id)
		}
	}
	for _, id := range late {
		id.index = -1
		r.give(id)
	}
	for _, id := range live {
		m.Live = append(m.Live, id.pod)
	}
	slices.SortStableFunc(m.Live, func(a, b *v1.Pod) int { return cmp.Compare(r.of[a], r.of[b]) })
	for _, p := range m.Live {
		m.Ranks = append(m.Ranks, r.of[p])
	}
}

// keep reserves the ranks that are written on members with a node, ended ones included.
func (r *ranks) keep(live []identity, ended []*v1.Pod) {
	for _, id := range live {
		rank, ok := RankOf(id.pod)
		if !ok || id.pod.Spec.NodeName == "" || r.taken[rank] {
			continue
		}
		r.of[id.pod], r.taken[rank] = rank, true
		if base := rank - id.index; id.index >= 0 && base >= 0 {
			if _, known := r.bases[id.whole()]; !known {
				r.bases[id.whole()] = base
			}
		}
	}
	for _, p := range ended {
		if rank, ok := RankOf(p); ok {
			r.taken[rank] = true
		}
	}
}

// give assigns a member its rank, unless another member has it.
func (r *ranks) give(id identity) bool {
	rank, ok := r.of[id.pod]
	switch {
	case ok:
	case id.index >= 0:
		base, known := r.bases[id.whole()]
		if !known {
			base = r.next
			r.bases[id.whole()] = base
		}
		if rank = base + id.index; r.taken[rank] || rank >= MaxMembers {
			return false
		}
	default:
		for rank = r.next; r.taken[rank]; {
			rank++
		}
	}
	r.of[id.pod], r.taken[rank] = rank, true
	r.next = max(r.next, rank+1)
	return true
}

// whole returns the seat's group, as a seat without index.
func (s seat) whole() seat {
	s.index = 0
	return s
}
