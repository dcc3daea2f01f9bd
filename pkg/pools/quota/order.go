// SPDX-License-Identifier: Apache-2.0

package quota

// Step is one object to write or to remove.
type Step struct {
	Queue string // empty: the root Cohort
	Gone  bool   // the queue is not in the new division
}

// Order returns the steps by which a new division is written over an old one, so that the sum promised
// for sure is at no time more than in the greater of the two: first objects that shrink, are removed or
// stay, then those that grow or are new.
func Order(old, now Division) []Step {
	before := map[string]int64{}
	for _, q := range old.Queues {
		before[q.Name] = q.Nominal
	}
	var first, then []Step
	add := func(s Step, was, is int64) {
		if is <= was {
			first = append(first, s)
			return
		}
		then = append(then, s)
	}
	add(Step{}, old.Cohort, now.Cohort)
	for _, q := range now.Queues {
		add(Step{Queue: q.Name}, before[q.Name], q.Nominal)
	}
	wanted := make(map[string]bool, len(now.Queues))
	for _, q := range now.Queues {
		wanted[q.Name] = true
	}
	for _, q := range old.Queues {
		if !wanted[q.Name] {
			first = append(first, Step{Queue: q.Name, Gone: true})
		}
	}
	return append(first, then...)
}
