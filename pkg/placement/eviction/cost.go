// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
)

// MaxPods is the number of pods that one search can choose from.
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

// Pod is a pod that may be evicted, with the pods that are evicted with it on any node: see Add.
type Pod struct {
	Priority int32
	Started  int64 // ns since 1970, or NotStarted
	Late     int   // by how many waits it ends later than one wait; see Cost
	Budgets  []int // that its eviction uses up; several times if pods of its gang do too
	Devices  int   // of the resource requested first, that it may free
	More     int   // number of pods evicted with it
}

// Add has another pod evicted with this one. Together they are one violation of a budget.
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

// Quality is the quality of the devices that the preemptor would get.
type Quality struct {
	Ring      int64 // bottleneck, kB/s
	NUMANodes int   // that the devices are on; fewer are better
}

// Compare returns a negative number if q is better than o.
func (q Quality) Compare(o Quality) int {
	return cmp.Or(cmp.Compare(o.Ring, q.Ring), cmp.Compare(q.NUMANodes, o.NUMANodes))
}

// Cost is the cost of a set of victims; its fields are compared in this order.
type Cost struct {
	Violations int     // victims beyond a disruption budget
	Priority   int64   // the highest of a victim; NoPriority without victims
	Pods       int     // victims
	Late       int     // the greatest of a victim; 0 if all end within the time that is reasonable to wait
	Quality    Quality // of the freed devices
	Started    int64   // the earliest start of the victims of that priority; later is better
}

const (
	// NoPriority is below every pod's priority.
	NoPriority = -1 << 40
	// NotStarted is the start of a pod that has not started: it has no work to lose.
	NotStarted = math.MaxInt64
)

// Compare returns a negative number if c is less than o.
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

// charge subtracts a pod from the remaining disruptions of its budgets, and reports whether one of them
// had none left.
func charge(left []int32, budgets []int) (violated bool) {
	for _, b := range budgets {
		left[b]--
		violated = violated || left[b] < 0
	}
	return violated
}
