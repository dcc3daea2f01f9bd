// SPDX-License-Identifier: Apache-2.0

package question

import (
	"slices"
	"time"
)

// Question is kubelet's request: Size devices out of Offered, including all of Must.
type Question struct {
	Resource string
	Offered  Set      // must included
	Devices  Set      // the physical ids of what is offered
	Must     []string // sorted
	Size     int
	// Final is true if kubelet has already taken the devices and offers no others.
	Final bool
	At    time.Time // when it came
}

// New returns kubelet's request before it takes devices: size out of offered and must, including all of
// must.
func New(resource string, offered, must []string, size int) Question {
	return Question{Resource: resource, Offered: SetOf(offered), Devices: SetOf(Physicals(offered)), Must: SetOf(must).Sorted(), Size: size}
}

// NewFinal returns the question of an Allocate: which container kubelet took ids for.
func NewFinal(resource string, ids []string) Question {
	q := New(resource, ids, ids, len(ids))
	q.Final = true
	return q
}

// Overlapping returns the offered ids that overlap ids.
func (q *Question) Overlapping(ids Set) Set {
	out := Set{}
	if !q.Devices.HasAny(Physicals(ids.Sorted())) {
		return out // quick: the devices of most pods are not on offer
	}
	for id := range q.Offered {
		if ids.Overlaps(id) {
			out[id] = struct{}{}
		}
	}
	return out
}

// Avoiding returns the offer without the physical ids in avoid, but with the ids that must be taken.
func (q *Question) Avoiding(avoid Set) Set {
	out := SetOf(q.Must)
	for id := range q.Offered {
		if !avoid.Has(Physical(id)) {
			out[id] = struct{}{}
		}
	}
	return out
}

// Take fills the question from pools of physical ids, the first pool first, with one id per device. It
// fails if the pools have too few ids, or lack one that must be taken.
func (q *Question) Take(pools ...Set) ([]string, bool) {
	ids, used := slices.Clone(q.Must), Set{}
	for _, id := range q.Must {
		p := Physical(id)
		if used.Has(p) || !slices.ContainsFunc(pools, func(s Set) bool { return s.Has(p) }) {
			return nil, false
		}
		used[p] = struct{}{}
	}
	offered := q.Offered.Sorted()
	for _, pool := range pools {
		for _, id := range offered {
			if p := Physical(id); len(ids) < q.Size && pool.Has(p) && !used.Has(p) {
				used[p] = struct{}{}
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids, len(ids) == q.Size
}

// First fills the question with ids in order, from distinct devices as long as possible.
func (q *Question) First() []string {
	ids, used, taken := slices.Clone(q.Must), SetOf(Physicals(q.Must)), SetOf(q.Must)
	offered := q.Offered.Sorted()
	for _, distinct := range []bool{true, false} {
		for _, id := range offered {
			if len(ids) == q.Size || taken.Has(id) || (distinct && used.Has(Physical(id))) {
				continue
			}
			used[Physical(id)], taken[id] = struct{}{}, struct{}{}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Valid reports whether ids answer the question.
func (q *Question) Valid(ids []string) bool {
	s := SetOf(ids)
	return len(ids) == q.Size && len(s) == q.Size && s.HasAll(q.Must) && q.Offered.HasAll(ids)
}
