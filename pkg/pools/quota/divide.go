// SPDX-License-Identifier: Apache-2.0

package quota

// Capacity is what a pool has of one resource, in devices.
type Capacity struct {
	Total    int64 // as the pool's owner says
	Healthy  int64 // allocatable on the pool's nodes that take pods
	Reserved int64 // kept for nobody
	Foreign  int64 // held by pods of no tenant
}

// ForTenants is what tenants can share: no more than is said and no more than is there, less what
// is reserved and what others hold. It is never negative.
func (c Capacity) ForTenants() int64 {
	return max(0, min(c.Total, c.Healthy)-c.Reserved-c.Foreign)
}

// Share is what one tenant, or one queue of a pool without tenants, is promised, in devices.
// 0 ≤ Guaranteed ≤ Limit, and 0 ≤ Pinned ≤ Limit; who calls has checked it.
type Share struct {
	Name       string
	Guaranteed int64
	Limit      int64
	Weight     int64 // of what is nobody's, in thousandths; 0 borrows only what no other wants
	// Pinned is held by jobs that must not be preempted. While it is more than what is
	// guaranteed, it is what the queue has for sure.
	Pinned int64
	// Protected is the most that Pinned may become by further jobs.
	Protected int64
	// Keep says that others get none of what is guaranteed while it is idle.
	Keep bool
}

// Queue is what Kueue's ClusterQueue of a share says, in devices.
type Queue struct {
	Name      string
	Nominal   int64  // nominalQuota: never taken away
	Borrowing int64  // borrowingLimit: how much more than Nominal it may hold
	Lending   *int64 // lendingLimit: how much of Nominal others may borrow; nil: all
	Weight    int64  // fairSharing.weight, in thousandths
}

// Division is a pool's quota as Kueue's objects hold it.
type Division struct {
	Cohort int64 // nominalQuota of the root Cohort: what is nobody's
	Queues []Queue
	// Short is how much more is promised than there is. The queues keep their promises on paper,
	// and the first to ask get what is there.
	Short int64
}

// Divide divides a capacity, in the order of the shares. What all queues and the cohort hold for
// sure is the capacity, or more by Short.
func Divide(capacity int64, shares []Share) Division {
	d := Division{Queues: make([]Queue, 0, len(shares))}
	left := capacity
	for _, s := range shares {
		q := Queue{Name: s.Name, Nominal: max(s.Guaranteed, s.Pinned), Weight: s.Weight}
		q.Borrowing = s.Limit - q.Nominal
		if s.Keep {
			q.Lending = new(int64)
		}
		left -= q.Nominal
		d.Queues = append(d.Queues, q)
	}
	d.Cohort, d.Short = max(0, left), max(0, -left)
	return d
}
