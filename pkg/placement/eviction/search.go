// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
)

// Judge says what the preemptor would get.
type Judge interface {
	// Best judges the best devices there are when the pods of a set are gone. need are
	// those of them that hold these devices. Taking pods out of the set may only make
	// the answer worse.
	Best(gone Set) (q Quality, need Set, ok bool)
}

// Search looks for the cheapest set of victims. Steps bounds how often the judge is
// asked: when they are used up, the best set found so far is the answer.
type Search struct {
	Judge   Judge
	Pods    []Pod   // at most MaxPods, the more important ones first
	Allowed []int32 // disruptions, by budget
	Short   int     // how many devices are missing while nobody goes; a lower bound will do
	// With are, by pod, others of Pods that go if it does, and for them the same; nil if none has any.
	With []Set
	// Accept, if not nil, has the last word on a set that the judge likes.
	Accept func(Set) bool
	Steps  int

	left []int32
	// What the walk in progress looks for.
	violations, pods int
	atLeast          *Quality // any set of this quality ends it
	best             Set
	quality          Quality
	found            bool
}

// Best returns the cheapest set, which may be empty.
func (s *Search) Best() (Set, bool) {
	all := All(len(s.Pods))
	if _, ok := s.judge(all); !ok {
		return 0, false
	}
	for violations := 0; violations <= s.violationsOf(all); violations++ {
		for _, p := range s.priorities() {
			may := s.upTo(all, p, violations)
			if _, ok := s.judge(may); !ok {
				continue
			}
			for _, n := range s.sizes(may) {
				if s.walkAll(may, violations, n, nil) {
					return s.latest(s.soonest(may, violations, n), p, violations, n), true
				}
				if s.Steps <= 0 {
					return 0, false
				}
			}
		}
	}
	return 0, false
}

// priorities lists the distinct priorities from below, after one that nobody has.
func (s *Search) priorities() []int64 {
	out := []int64{NoPriority}
	for i := range s.Pods {
		out = append(out, int64(s.Pods[i].Priority))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// upTo leaves out pods that matter more than p, and where no budget may be violated
// those that cannot go without.
func (s *Search) upTo(all Set, p int64, violations int) (out Set) {
	for i := range all.Each() {
		pod := &s.Pods[i]
		if int64(pod.Priority) > p || violations == 0 && s.violationsOf(1<<i) > 0 {
			continue
		}
		out |= 1 << i
	}
	return s.whole(0, out)
}

// along adds to a set who goes with its pods.
func (s *Search) along(set Set) Set {
	if s.With == nil {
		return set
	}
	for i := range set.Each() {
		set |= s.With[i]
	}
	return set
}

// whole leaves out of may those with whom somebody goes who is neither in may nor in.
func (s *Search) whole(in, may Set) Set {
	if s.With == nil {
		return may
	}
	out := may
	for i := range may.Each() {
		if s.With[i]&^(in|may) != 0 {
			out &^= 1 << i
		}
	}
	return out
}

// size is how many pods go with a set.
func (s *Search) size(set Set) int {
	n := set.Len()
	for i := range set.Each() {
		n += s.Pods[i].More
	}
	return n
}

// sizes are the sizes that sets within may can have, ascending.
func (s *Search) sizes(may Set) (out []int) {
	can := make([]bool, s.size(may)+1)
	can[0] = true
	last := 0
	for i := range may.Each() {
		size := 1 + s.Pods[i].More
		for n := last; n >= 0; n-- {
			can[n+size] = can[n+size] || can[n]
		}
		last += size
	}
	for n := range can {
		if can[n] {
			out = append(out, n)
		}
	}
	return out
}

func (s *Search) violationsOf(set Set) (n int) {
	if len(s.Allowed) == 0 {
		return 0
	}
	s.left = append(s.left[:0], s.Allowed...)
	for i := range set.Each() {
		if charge(s.left, s.Pods[i].Budgets) {
			n++
		}
	}
	return n
}

type answer struct {
	Quality
	need Set
}

func (s *Search) judge(gone Set) (answer, bool) {
	s.Steps--
	q, need, ok := s.Judge.Best(gone)
	return answer{q, need & gone}, ok
}

// walkAll finds the best set of at most n pods within may, or with atLeast any one
// that is no worse.
func (s *Search) walkAll(may Set, violations, n int, atLeast *Quality) bool {
	s.violations, s.pods, s.atLeast, s.found = violations, n, atLeast, false
	s.walk(0, may)
	return s.found
}

// walk goes through the sets that have all of in and some of open. What the judge
// makes of all of them together bounds what any of them can be: if few enough are
// needed for that, nothing below can be better.
func (s *Search) walk(in, open Set) {
	room := s.pods - s.size(in)
	if s.Steps <= 0 || room < 0 || s.done() || s.freed(in, open, room) < s.Short || s.violationsOf(in) > s.violations {
		return
	}
	if room == 0 {
		open = 0
	}
	a, ok := s.judge(in | open)
	if !ok || s.hopeless(a.Quality) {
		return
	}
	set := s.along(in | a.need)
	if s.size(set) <= s.pods && s.violationsOf(set) <= s.violations && s.suffices(set) {
		return
	}
	if open == 0 {
		return
	}
	next := a.need & open
	if next == 0 {
		next = open
	}
	pod := Set(1) << next.last()
	with := s.along(pod)
	s.walk(in|with, open&^with)
	s.walk(in, s.whole(in, open&^pod))
}

// suffices takes a set if it does by itself, and reports whether the walk need not
// go on below.
func (s *Search) suffices(set Set) bool {
	a, ok := s.judge(set)
	if !ok || s.hopeless(a.Quality) || s.Accept != nil && !s.Accept(set) {
		return false
	}
	s.best, s.quality, s.found = set, a.Quality, true
	return true
}

func (s *Search) done() bool { return s.found && s.atLeast != nil }

// hopeless reports whether a quality is not what the walk looks for.
func (s *Search) hopeless(q Quality) bool {
	if s.atLeast != nil {
		return q.Compare(*s.atLeast) > 0
	}
	return s.found && q.Compare(s.quality) >= 0
}

// freed bounds the devices that come free with in and so many more of open, of which
// no budget loses more than the walk allows. Pods of several budgets count as if they
// had none, and each budget as if all violations were its own.
func (s *Search) freed(in, open Set, more int) (n int) {
	for i := range in.Each() {
		n += s.Pods[i].Devices
	}
	if n >= s.Short || more <= 0 {
		return n
	}
	spare := int32(s.violations - s.violationsOf(in))
	for b := range s.left { // what in leaves of the budgets
		s.left[b] = max(0, s.left[b]) + max(0, spare)
	}
	var most [MaxPods]int
	count := 0
	for i := range open.Each() {
		most[count] = i
		count++
	}
	slices.SortFunc(most[:count], func(a, b int) int { return cmp.Compare(s.Pods[b].Devices, s.Pods[a].Devices) })
	for _, i := range most[:count] {
		if b := s.Pods[i].Budgets; len(b) == 1 {
			if s.left[b[0]] == 0 {
				continue
			}
			s.left[b[0]]--
		}
		n += s.Pods[i].Devices
		if more--; more == 0 || n >= s.Short {
			break
		}
	}
	return n
}

// soonest leaves out pods that end later than they must for a set as small as the one
// found, which it replaces by the best one without them.
func (s *Search) soonest(may Set, violations, n int) Set {
	if s.Accept != nil {
		return may // each further question to it costs too much
	}
	var terms []int
	for i := range may.Each() {
		if late := s.Pods[i].Late; late < s.lateOf(s.best) {
			terms = append(terms, late)
		}
	}
	slices.Sort(terms)
	terms = slices.Compact(terms)
	best, quality := s.best, s.quality
	lo, hi := 0, len(terms) // terms[hi], or the set found, is reached
	for lo < hi {
		mid := (lo + hi) / 2
		within := s.within(may, terms[mid])
		if s.walkAll(within, violations, n, nil) {
			best, quality, hi = s.best, s.quality, mid
		} else {
			lo = mid + 1
		}
	}
	s.best, s.quality = best, quality
	return s.within(may, s.lateOf(best))
}

// within leaves out pods that end later than that.
func (s *Search) within(may Set, late int) (out Set) {
	for i := range may.Each() {
		if s.Pods[i].Late <= late {
			out |= 1 << i
		}
	}
	return s.whole(0, out)
}

func (s *Search) lateOf(set Set) (late int) {
	for i := range set.Each() {
		late = max(late, s.Pods[i].Late)
	}
	return late
}

// latest replaces the set found by one that is as good, but whose most important
// pods have run for the shortest time.
func (s *Search) latest(may Set, p int64, violations, n int) Set {
	best, quality := s.best, s.quality
	if s.Accept != nil {
		return best // each further question to it costs too much
	}
	starts := s.starts(may, p)
	earliest := s.starts(best, p)
	if len(earliest) == 0 {
		return best
	}
	at, _ := slices.BinarySearch(starts, earliest[0])
	lo, hi := at, len(starts)-1 // starts[lo] is reached
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if s.walkAll(s.since(may, p, starts[mid]), violations, n, &quality) {
			best = s.best
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return best
}

// starts lists when the pods of priority p started, ascending.
func (s *Search) starts(set Set, p int64) []int64 {
	var out []int64
	for i := range set.Each() {
		if int64(s.Pods[i].Priority) == p {
			out = append(out, s.Pods[i].Started)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// since leaves out pods of priority p that started before.
func (s *Search) since(may Set, p, start int64) (out Set) {
	for i := range may.Each() {
		if int64(s.Pods[i].Priority) != p || s.Pods[i].Started >= start {
			out |= 1 << i
		}
	}
	return s.whole(0, out)
}
