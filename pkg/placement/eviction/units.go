// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"
)

// Kind is what a unit of victims is; the greater, the dearer.
type Kind uint8

// The kinds.
const (
	Attempt Kind = iota // the places that are held for a gang on its way: nobody is evicted, it is planned anew
	Surplus             // a gang's member above its minimum
	Single              // a pod of no gang
	Whole               // a gang, all members that it needs to have its minimum
)

// NoUnit is the unit that none needs.
const NoUnit = -1

// Unit is some pods that go together or stay together.
type Unit struct {
	Kind
	Name     string // tells units apart, where nothing else does
	Priority int32
	Pods     []Pod
	// Needs is the unit that has to stay for this one to stay, by position; NoUnit if there is
	// none. Surplus members need those of lower rank, and the lowest of them its gang.
	Needs int
}

// Plan is what the preemptor would get once some units are gone.
type Plan interface {
	// Uses reports whether the plan might break if the unit stayed.
	Uses(unit int) bool
}

// Choose returns the units that have to go, by position, ascending. First all go; then, the dearest
// first, each unit comes back without which there still is a plan. So no unit goes for which a
// cheaper one could have gone, and none goes in vain. plan is asked at most steps times: units
// that the last plan might use go then unasked. ok is false if there is no plan at all: then
// nobody goes.
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
			continue // a gang that goes leaves nothing behind
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

// order lists the units, the dearest first: whose eviction violates a budget, of higher priority,
// of the dearer kind, with more pods, which frees less, and which started earlier. One that needs
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

// dearer is negative if a is dearer than b.
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

// started is when the first of its pods did.
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
