// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
)

// Kind is the kind of a unit of victims; a greater one is dearer.
type Kind uint8

// The kinds, the cheapest first.
const (
	Attempt Kind = iota // the places held for a gang's attempt: no pod is evicted, the gang is planned again
	Surplus             // a gang's member above its minimum
	Single              // a pod of no gang
	Whole               // a gang, all members that it needs for its minimum
)

// NoUnit means that a unit needs no other.
const NoUnit = -1

// Unit is a group of pods that are evicted together or stay together.
type Unit struct {
	Kind
	Name     string // distinguishes units that are otherwise equal
	Priority int32
	Pods     []Pod
	// Needs is the unit that has to stay for this one to stay, by position; NoUnit if there is none. Surplus
	// members need those of lower rank, and the lowest of them its gang.
	Needs int
}

// Plan is the preemptor's placement once some units are evicted.
type Plan interface {
	// Uses reports whether the plan might break if the unit stayed.
	Uses(unit int) bool
}

// Choose returns the units that have to be evicted, by position, ascending. It starts with all evicted and
// returns each unit, the dearest first, if there still is a plan with it. So no unit is evicted instead of
// a cheaper one, and none in vain. plan is called at most steps times: after that, units that the last
// plan might use are evicted without a call. ok is false if there is no plan at all: then none is evicted.
func Choose(units []Unit, allowed []int32, steps int, plan func(gone []bool) (Plan, bool)) (victims []int, ok bool) {
	gone := make([]bool, len(units))
	for i := range gone {
		gone[i] = true
	}
	last, ok := plan(gone)
	if !ok {
		return nil, false
	}
	steps--
	for _, i := range order(units, allowed) {
		switch needs := units[i].Needs; {
		case needs != NoUnit && gone[needs]:
			continue // a gang that is evicted leaves no member behind
		case !last.Uses(i):
			gone[i] = false
			continue
		case steps <= 0:
			continue
		}
		steps--
		gone[i] = false
		if p, ok := plan(gone); ok {
			last = p
		} else {
			gone[i] = true
		}
	}
	for i := range gone {
		if gone[i] {
			victims = append(victims, i)
		}
	}
	return victims, true
}

// order lists the units, the dearest first: a unit whose eviction violates a budget, of higher priority,
// of the dearer kind, with more pods, which frees less, and which started earlier. A unit that needs
// another comes after it.
func order(units []Unit, allowed []int32) []int {
	list := make([]int, len(units))
	for i := range list {
		list[i] = i
	}
	protected := make([]bool, len(units))
	slices.SortFunc(list, func(a, b int) int { return dearer(units, protected, a, b) })
	if len(allowed) > 0 {
		left := slices.Clone(allowed)
		for _, i := range list {
			for _, pod := range units[i].Pods {
				protected[i] = charge(left, pod.Budgets) || protected[i]
			}
		}
		slices.SortFunc(list, func(a, b int) int { return dearer(units, protected, a, b) })
	}
	return afterNeeds(units, list)
}

// dearer returns a negative number if a is dearer than b.
func dearer(units []Unit, protected []bool, a, b int) int {
	x, y := &units[a], &units[b]
	if protected[a] != protected[b] {
		if protected[a] {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(y.Kind, x.Kind), cmp.Compare(len(y.Pods), len(x.Pods)),
		cmp.Compare(x.devices(), y.devices()), cmp.Compare(x.started(), y.started()), cmp.Compare(x.Name, y.Name), cmp.Compare(a, b))
}

func (u *Unit) devices() (n int) {
	for i := range u.Pods {
		n += u.Pods[i].Devices
	}
	return n
}

// started is the earliest start of its pods.
func (u *Unit) started() int64 {
	first := int64(NotStarted)
	for i := range u.Pods {
		first = min(first, u.Pods[i].Started)
	}
	return first
}

// afterNeeds moves units behind those they need.
func afterNeeds(units []Unit, list []int) []int {
	out, placed, waiting := make([]int, 0, len(list)), make([]bool, len(units)), map[int][]int{}
	var place func(i int)
	place = func(i int) {
		out, placed[i] = append(out, i), true
		for _, j := range waiting[i] {
			place(j)
		}
	}
	for _, i := range list {
		if needs := units[i].Needs; needs != NoUnit && !placed[needs] {
			waiting[needs] = append(waiting[needs], i)
		} else {
			place(i)
		}
	}
	return out
}
