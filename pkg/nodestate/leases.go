// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Names of the per-node Leases are these prefixes and the node's name.
const (
	ExporterLeasePrefix = "exporter-"
	AgentLeasePrefix    = "agent-"
)

// leaseTime is when a Lease runs out, in Unix nanoseconds; 0 when there is none.
type leaseTime struct{ until atomic.Int64 }

func (l *leaseTime) fresh(now time.Time) bool { return now.UnixNano() < l.until.Load() }

// leaseTable keeps the expiry of every Lease of the project's namespace.
type leaseTable struct {
	mu     sync.Mutex
	times  map[string]*leaseTime // Lease name -> expiry; entries stay, they are few
	leader *leaderView
}

// leaderView is the scheduler's own leader-election Lease as last seen.
type leaderView struct {
	name   string
	mu     sync.Mutex
	holder string
	renew  time.Time
}

func newLeaseTable(leaderName string) *leaseTable {
	return &leaseTable{times: map[string]*leaseTime{}, leader: &leaderView{name: leaderName}}
}

// time returns the expiry of a Lease; the pointer is good for ever.
func (t *leaseTable) time(name string) *leaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.times[name]
	if !ok {
		l = &leaseTime{}
		t.times[name] = l
	}
	return l
}

// set records a Lease as seen at now and reports whether one that had run out came back.
func (t *leaseTable) set(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return false
	}
	if t.leader.name != "" && l.Name == t.leader.name {
		t.leader.mu.Lock()
		t.leader.renew = l.Spec.RenewTime.Time
		t.leader.holder = ""
		if l.Spec.HolderIdentity != nil {
			t.leader.holder = *l.Spec.HolderIdentity
		}
		t.leader.mu.Unlock()
	}
	until := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second).UnixNano()
	old := t.time(l.Name).until.Swap(until)
	return old <= now.UnixNano() && until > now.UnixNano()
}

// drop records that a Lease was deleted.
func (t *leaseTable) drop(name string) { t.time(name).until.Store(0) }

// snapshot returns who holds the leader Lease and when it was last renewed.
func (v *leaderView) snapshot() (holder string, renew time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holder, v.renew
}
