// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"slices"
	"time"
)

// Request is a non-preemptible job that has not been released yet.
type Request struct {
	Job      string // unique
	Share    string // the name of its Share
	Devices  int64
	Priority int64 // the greater one goes first
	Since    time.Time
}

// Reason is why a request is not granted.
type Reason string

// The reasons.
const (
	// NoShare: the request's share does not exist.
	NoShare Reason = "NoShare"
	// NeverFits: the request alone exceeds the amount that its share may protect.
	NeverFits Reason = "NeverFits"
	// AtLimit: the request and the jobs that its share protects exceed that amount.
	AtLimit Reason = "AtLimit"
	// OthersGuaranteed: the request would take devices that are guaranteed to other shares or pinned in
	// them.
	OthersGuaranteed Reason = "OthersGuaranteed"
)

// Verdict is the result of judging a request, with the deciding numbers.
type Verdict struct {
	Reason Reason // empty: it is granted
	// Most is the most that the share may protect, and Pinned the amount that it protects now.
	Most, Pinned int64
	// More is the request's need beyond the amount that its share holds for sure, and Free the rest of
	// the capacity; Free is negative while the promises exceed the capacity.
	More, Free int64
}

// Protect returns the requests that can be protected now, most important and oldest first, and the
// shares with their pins after that. A request is granted if its share stays within its limit and the
// amount that it may protect, and if all shares together then hold no more for sure than the capacity:
// devices guaranteed to other shares are not given away. A refused request does not hold back later
// ones. A request without a share is never granted. The given shares are not modified.
func Protect(capacity int64, shares []Share, requests []Request) (granted []string, pinned []Share) {
	pinned = slices.Clone(shares)
	for _, r := range inOrder(requests) {
		if Judge(capacity, pinned, r).Reason != "" {
			continue
		}
		i := slices.IndexFunc(pinned, func(s Share) bool { return s.Name == r.Share })
		pinned[i].Pinned += r.Devices
		granted = append(granted, r.Job)
	}
	return granted, pinned
}

// Judge decides whether a request can be granted beside the present pins.
func Judge(capacity int64, shares []Share, r Request) Verdict {
	i := slices.IndexFunc(shares, func(s Share) bool { return s.Name == r.Share })
	if i < 0 {
		return Verdict{Reason: NoShare}
	}
	s := &shares[i]
	after := s.Pinned + r.Devices
	v := Verdict{Most: min(s.Limit, s.Protected), Pinned: s.Pinned, More: max(s.Guaranteed, after) - max(s.Guaranteed, s.Pinned), Free: capacity}
	for _, other := range shares {
		v.Free -= max(other.Guaranteed, other.Pinned)
	}
	switch {
	case r.Devices > v.Most:
		v.Reason = NeverFits
	case after > v.Most:
		v.Reason = AtLimit
	// After nodes were lost, the promises may exceed the capacity already: then a job waits, though its
	// share has room within its guarantee.
	case v.More > v.Free:
		v.Reason = OthersGuaranteed
	}
	return v
}

// inOrder returns requests sorted by priority, age and name, without changing its argument.
func inOrder(requests []Request) []Request {
	return slices.SortedFunc(slices.Values(requests), func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job))
	})
}
