// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"slices"
	"time"
)

// Request is a job that must not be preempted and has not been let in yet.
type Request struct {
	Job      string // unique
	Share    string // whose it is, a Share's name
	Devices  int64
	Priority int64 // the greater goes first
	Since    time.Time
}

// Protect says which requests can be protected now, most important and oldest first, and how the
// shares are then pinned. A request is granted if its share stays within its limit and what it may
// protect, and if what all shares then hold for sure is no more than the capacity: what others were
// guaranteed is not given away. One that is not granted does not hold back those behind it. A request of no share is never
// granted. The shares that were given are left as they are.
func Protect(capacity int64, shares []Share, requests []Request) (granted []string, pinned []Share) {
	pinned = slices.Clone(shares)
	free := capacity
	for _, s := range pinned {
		free -= max(s.Guaranteed, s.Pinned)
	}
	for _, r := range inOrder(requests) {
		i := slices.IndexFunc(pinned, func(s Share) bool { return s.Name == r.Share })
		if i < 0 {
			continue
		}
		s := &pinned[i]
		after := s.Pinned + r.Devices
		more := max(s.Guaranteed, after) - max(s.Guaranteed, s.Pinned)
		// More than is there may be promised already, after nodes were lost: then a job waits,
		// though its share has room within what it was guaranteed.
		if after > min(s.Limit, s.Protected) || more > free {
			continue
		}
		s.Pinned, free = after, free-more
		granted = append(granted, r.Job)
	}
	return granted, pinned
}

// inOrder sorts requests without changing what it is given.
func inOrder(requests []Request) []Request {
	return slices.SortedFunc(slices.Values(requests), func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job))
	})
}
