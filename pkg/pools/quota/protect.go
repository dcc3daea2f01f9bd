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

// Reason is why a request is not granted.
type Reason string

// The reasons.
const (
	// NoShare: the request is of no share.
	NoShare Reason = "NoShare"
	// NeverFits: the request alone is more than its share may protect.
	NeverFits Reason = "NeverFits"
	// AtLimit: the request and what its share protects are more than it may.
	AtLimit Reason = "AtLimit"
	// OthersGuaranteed: the request would take of what other shares are guaranteed or have pinned.
	OthersGuaranteed Reason = "OthersGuaranteed"
)

// Verdict says whether a request can be granted, and what decides it.
type Verdict struct {
	Reason Reason // empty: it is granted
	// Most is the most that the share may protect, and Pinned what it does.
	Most, Pinned int64
	// More is what the request needs beyond what its share holds for sure, and Free what is left of
	// the capacity; Free is negative while more is promised than there is.
	More, Free int64
}

// Protect says which requests can be protected now, most important and oldest first, and how the
// shares are then pinned. A request is granted if its share stays within its limit and what it may
// protect, and if what all shares then hold for sure is no more than the capacity: what others were
// guaranteed is not given away. One that is not granted does not hold back those behind it. A
// request of no share is never granted. The shares that were given are left as they are.
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

// Judge says whether a request can be granted beside what is pinned.
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
	// More than is there may be promised already, after nodes were lost: then a job waits, though its
	// share has room within what it was guaranteed.
	case v.More > v.Free:
		v.Reason = OthersGuaranteed
	}
	return v
}

// inOrder sorts requests without changing what it is given.
func inOrder(requests []Request) []Request {
	return slices.SortedFunc(slices.Values(requests), func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job))
	})
}
