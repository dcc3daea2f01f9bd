// SPDX-License-Identifier: Apache-2.0

package quota

// Capacity is the devices of a pool, of one resource.
type Capacity struct {
	Total    int64 // the owner's number
	Healthy  int64 // allocatable on the pool's nodes that take pods
	Reserved int64 // kept back from all tenants
	Foreign  int64 // held by pods of no tenant
}

// ForTenants returns the devices that tenants can share: the smaller of Total and Healthy, minus
// reserved and foreign ones. It is never negative.
func (c Capacity) ForTenants() int64 {
	return max(0, min(c.Total, c.Healthy)-c.Reserved-c.Foreign)
}

// Share is the promise to one tenant, or to one queue of a pool without tenants, in devices. 0 ≤
// Guaranteed ≤ Limit, and 0 ≤ Pinned ≤ Limit; the caller has checked it.
type Share struct {
	Name       string
	Guaranteed int64
	Limit      int64
	Weight     int64 // in sharing unguaranteed devices, in thousandths; 0 borrows only devices that no other wants
	// Pinned is held by non-preemptible jobs. While it exceeds Guaranteed, it is the amount that the
	// queue has for sure.
	Pinned int64
	// Protected is the most that Pinned may become by further jobs.
	Protected int64
	// Keep keeps idle guaranteed devices from other shares.
	Keep bool
}

// Queue is the quota of a share's ClusterQueue, in devices.
type Queue struct {
	Name      string
	Nominal   int64  // nominalQuota: never taken away
	Borrowing int64  // borrowingLimit: how much more than Nominal it may hold
	Lending   *int64 // lendingLimit: how much of Nominal others may borrow; nil: all
	Weight    int64  // fairSharing.weight, in thousandths
}

// Division is a pool's quota as Kueue's objects hold it.
type Division struct {
	Cohort int64 // nominalQuota of the root Cohort: devices promised to no queue
	Queues []Queue
	// Short is the excess of the promises over the capacity. The queues keep their nominal quota, and
	// the first to request devices get the existing ones.
	Short int64
}

// Divide divides a capacity, in the order of the shares. The sum that all queues and the cohort hold for
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
