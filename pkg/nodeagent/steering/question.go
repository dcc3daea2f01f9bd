// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"slices"
	"time"
)

// question is what kubelet asks: size devices out of offered, and all of must among
// them.
type question struct {
	resource string
	offered  idSet    // must included
	devices  idSet    // the physical ids of what is offered
	must     []string // sorted
	size     int
	// final: kubelet has already taken the devices and offers nothing else.
	final bool
	at    time.Time // when it came
}

func newQuestion(resource string, offered, must []string, size int) question {
	return question{resource: resource, offered: newSet(offered), devices: newSet(physicals(offered)), must: newSet(must).sorted(), size: size}
}

// finalQuestion is the question of an Allocate: for which container did kubelet take
// ids?
func finalQuestion(resource string, ids []string) question {
	q := newQuestion(resource, ids, ids, len(ids))
	q.final = true
	return q
}

// overlapping returns the offered ids that overlap ids.
func (q *question) overlapping(ids idSet) idSet {
	out := idSet{}
	if !q.devices.hasAny(physicals(ids.sorted())) {
		return out // quick: what most pods have is not on offer
	}
	for id := range q.offered {
		if ids.overlaps(id) {
			out[id] = struct{}{}
		}
	}
	return out
}

// avoiding is the offer without the physical ids in avoid, but with the ids that must
// be taken.
func (q *question) avoiding(avoid idSet) idSet {
	out := newSet(q.must)
	for id := range q.offered {
		if !avoid.has(physical(id)) {
			out[id] = struct{}{}
		}
	}
	return out
}

// take fills the question from pools of physical ids, the first pool first, with one id
// per device. It fails if the pools have too few ids, or lack one that must be taken.
func (q *question) take(pools ...idSet) ([]string, bool) {
	ids, used := slices.Clone(q.must), idSet{}
	for _, id := range q.must {
		p := physical(id)
		if used.has(p) || !slices.ContainsFunc(pools, func(s idSet) bool { return s.has(p) }) {
			return nil, false
		}
		used[p] = struct{}{}
	}
	offered := q.offered.sorted()
	for _, pool := range pools {
		for _, id := range offered {
			if p := physical(id); len(ids) < q.size && pool.has(p) && !used.has(p) {
				used[p] = struct{}{}
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids, len(ids) == q.size
}

// first fills the question with ids in order, from distinct devices as long as there
// are some.
func (q *question) first() []string {
	ids, used, taken := slices.Clone(q.must), newSet(physicals(q.must)), newSet(q.must)
	offered := q.offered.sorted()
	for _, distinct := range []bool{true, false} {
		for _, id := range offered {
			if len(ids) == q.size || taken.has(id) || (distinct && used.has(physical(id))) {
				continue
			}
			used[physical(id)], taken[id] = struct{}{}, struct{}{}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// valid reports whether ids answer the question.
func (q *question) valid(ids []string) bool {
	s := newSet(ids)
	return len(ids) == q.size && len(s) == q.size && s.hasAll(q.must) && q.offered.hasAll(ids)
}
