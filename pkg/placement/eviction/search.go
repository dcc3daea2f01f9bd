// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
)

// Judge rates the devices that the preemptor would get.
type Judge interface {
	// Best returns the quality of the best free devices once the pods of a set are evicted. need are those of
	// them that hold these devices. Removing pods from the set must never give a better result.
	Best(gone Set) (q Quality, need Set, ok bool)
}

// Search finds the cheapest set of victims. Steps bounds the number of calls of the judge: when they are
// used up, the result is the best set found so far.
type Search struct {
	Judge   Judge
	Pods    []Pod   // at most MaxPods, the more important ones first
	Allowed []int32 // disruptions, by budget
	Short   int     // number of missing devices without any eviction, or a lower bound of it
	// With are, for each pod, the others of Pods that are evicted with it, and the same for them; nil if none
	// has any.
	With []Set
	// Accept, if not nil, has to accept a set too, after the judge.
	Accept func(Set) bool
	Steps  int

	left []int32
	// The bounds and the result of the walk in progress.
	violations, pods int
	atLeast          *Quality // any set of this quality ends the walk
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

// priorities lists the distinct priorities, ascending, after NoPriority.
func (s *Search) priorities() []int64 {
	out := []int64{NoPriority}
	for i := range s.Pods {
		out = append(out, int64(s.Pods[i].Priority))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// upTo removes pods of a priority above p, and, if no budget may be violated, those whose eviction would
// violate one.
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

// along adds to a set the pods that are evicted with its pods.
func (s *Search) along(set Set) Set {
	if s.With == nil {
		return set
	}
	for i := range set.Each() {
		set |= s.With[i]
	}
	return set
}

// whole removes from may the pods whose eviction needs that of a pod in neither may nor in.
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

// size is the number of pods evicted with a set.
func (s *Search) size(set Set) int {
	n := set.Len()
	for i := range set.Each() {
		n += s.Pods[i].More
	}
	return n
}

// sizes returns the sizes that sets within may can have, ascending.
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

// walkAll finds the best set of at most n pods within may, or with atLeast any set that is no worse.
func (s *Search) walkAll(may Set, violations, n int, atLeast *Quality) bool {
	s.violations, s.pods, s.atLeast, s.found = violations, n, atLeast, false
	s.walk(0, may)
	return s.found
}

// walk visits the sets that contain in and some of open. The judge's result for in and open together
// bounds that of each of them: if few enough pods are needed for it, no smaller set is better.
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

// suffices records a set if the judge and Accept take it, and reports whether its supersets need no visit.
func (s *Search) suffices(set Set) bool {
	a, ok := s.judge(set)
	if !ok || s.hopeless(a.Quality) || s.Accept != nil && !s.Accept(set) {
		return false
	}
	s.best, s.quality, s.found = set, a.Quality, true
	return true
}

func (s *Search) done() bool { return s.found && s.atLeast != nil }

// hopeless reports whether a quality is too low for the walk.
func (s *Search) hopeless(q Quality) bool {
	if s.atLeast != nil {
		return q.Compare(*s.atLeast) > 0
	}
	return s.found && q.Compare(s.quality) >= 0
}

// freed is an upper bound of the devices freed by in and `more` pods of open, if no budget loses more than
// the walk allows. Pods of several budgets are treated as if they had none, and each budget as if it had
// all violations.
func (s *Search) freed(in, open Set, more int) (n int) {
	for i := range in.Each() {
		n += s.Pods[i].Devices
	}
	if n >= s.Short || more <= 0 {
		return n
	}
	spare := int32(s.violations - s.violationsOf(in))
	for b := range s.left { // the disruptions that in leaves to the budgets
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

// soonest removes pods that end later than necessary for a set as small as the one found, which it
// replaces by the best one without them.
func (s *Search) soonest(may Set, violations, n int) Set {
	if s.Accept != nil {
		return may // each further call of it costs too much
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
	lo, hi := 0, len(terms) // terms[hi], or the end time of the found set, is feasible
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

// within removes pods that end later than late.
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

// latest replaces the found set by one of the same quality whose most important pods started last.
func (s *Search) latest(may Set, p int64, violations, n int) Set {
	best, quality := s.best, s.quality
	if s.Accept != nil {
		return best // each further call of it costs too much
	}
	starts := s.starts(may, p)
	earliest := s.starts(best, p)
	if len(earliest) == 0 {
		return best
	}
	at, _ := slices.BinarySearch(starts, earliest[0])
	lo, hi := at, len(starts)-1 // starts[lo] is feasible
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

// starts lists the start times of the pods of priority p, ascending.
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

// since removes pods of priority p that started before start.
func (s *Search) since(may Set, p, start int64) (out Set) {
	for i := range may.Each() {
		if int64(s.Pods[i].Priority) != p || s.Pods[i].Started >= start {
			out |= 1 << i
		}
	}
	return s.whole(0, out)
}
