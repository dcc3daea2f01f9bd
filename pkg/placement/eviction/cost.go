// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
)

// MaxPods is how many pods one search can choose from.
const MaxPods = 64

// Set is a set of pods by position.
type Set uint64

// All is the set of the first n pods.
func All(n int) Set {
	if n >= MaxPods {
		return ^Set(0)
	}
	return 1<<n - 1
}

// Len counts the pods of a set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether the i-th pod is in the set.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// Each yields the pods of the set in ascending order.
func (s Set) Each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// last is the highest position of a set that is not empty.
func (s Set) last() int { return bits.Len64(uint64(s)) - 1 }

// Pod is one that could go, with those that go with it wherever they are: see Add.
type Pod struct {
	Priority int32
	Started  int64 // ns since 1970, or NotStarted
	Late     int   // how many waits it takes longer than one to end; see Cost
	Budgets  []int // that its eviction counts against; several times if several of its gang do
	Devices  int   // of the resource asked first, that it may free
	More     int   // how many pods go with it
}

// Add has another pod go with this one. Beyond a budget they count once together.
func (p *Pod) Add(o *Pod) {
	switch {
	case o.Priority > p.Priority:
		p.Priority, p.Started = o.Priority, o.Started
	case o.Priority == p.Priority:
		p.Started = min(p.Started, o.Started)
	}
	p.Late = max(p.Late, o.Late)
	p.Budgets = append(p.Budgets, o.Budgets...)
	p.More += 1 + o.More
}

// Quality says how good the devices are that the preemptor would get.
type Quality struct {
	Ring      int64 // bottleneck, kB/s
	NUMANodes int   // that the devices are on; fewer are better
}

// Compare is negative if q is better than o.
func (q Quality) Compare(o Quality) int {
	return cmp.Or(cmp.Compare(o.Ring, q.Ring), cmp.Compare(q.NUMANodes, o.NUMANodes))
}

// Cost is what a set of victims is judged by, in this order.
type Cost struct {
	Violations int     // victims beyond a disruption budget
	Priority   int64   // the highest of a victim's; NoPriority without victims
	Pods       int     // victims
	Late       int     // the most of a victim's: 0 if all end within the time that is reasonable to wait
	Quality    Quality // of what they free
	Started    int64   // the earliest start of the victims of that priority; later is better
}

const (
	// NoPriority is below every pod's.
	NoPriority = -1 << 40
	// NotStarted is when a pod started that has not: it has no work to lose.
	NotStarted = math.MaxInt64
)

// Compare is negative if c is less than o.
func (c *Cost) Compare(o *Cost) int {
	return cmp.Or(cmp.Compare(c.Violations, o.Violations), cmp.Compare(c.Priority, o.Priority), cmp.Compare(c.Pods, o.Pods),
		cmp.Compare(c.Late, o.Late), c.Quality.Compare(o.Quality), cmp.Compare(o.Started, c.Started))
}

// CostOf is the cost of some victims that free devices of the given quality.
func CostOf(victims []Pod, allowed []int32, q Quality) Cost {
	c := Cost{Priority: NoPriority, Quality: q, Started: NotStarted}
	left := slices.Clone(allowed)
	for i := range victims {
		v := &victims[i]
		c.Pods += 1 + v.More
		c.Late = max(c.Late, v.Late)
		if charge(left, v.Budgets) {
			c.Violations++
		}
		switch p := int64(v.Priority); {
		case p > c.Priority:
			c.Priority, c.Started = p, v.Started
		case p == c.Priority:
			c.Started = min(c.Started, v.Started)
		}
	}
	return c
}

// charge takes a pod out of what its budgets have left, and reports whether one of
// them had nothing left.
func charge(left []int32, budgets []int) (violated bool) {
	for _, b := range budgets {
		left[b]--
		violated = violated || left[b] < 0
	}
	return violated
}
