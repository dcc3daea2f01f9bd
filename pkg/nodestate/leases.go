// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names of the per-node Leases are these prefixes and the node's name.
const (
	ExporterLeasePrefix = "exporter-"
	AgentLeasePrefix    = "agent-"
)

// leaseTime is until when a Lease counts, by the clock of this process.
//
// The clocks of nodes are not trusted. A Lease counts for its term from when this
// process saw it renewed: its renewTime only tells one renewal from the next, as in
// leader election and for the Leases of kubelets. A renewal that is there already
// when the Lease is first seen may be old, so it is believed to be as old as it says,
// and never to be of the future. So after a start a node that has been silent for a day
// does not count, nor one whose clock is far behind until its next renewal is seen.
type leaseTime struct {
	until atomic.Int64 // Unix nanoseconds; 0 when there is no Lease
	term  atomic.Int64 // nanoseconds after a renewal
	owner atomic.Value // types.UID of the Node that the renewing program runs on, empty if unknown

	renewed time.Time // the last renewal seen, by the node's clock; guarded by the table's mutex
	seen    time.Time // when that was, by ours; guarded by the table's mutex
	lived   bool      // it was fresh when expired looked last; guarded by the table's mutex
}

func (l *leaseTime) fresh(now time.Time) bool { return now.UnixNano() < l.until.Load() }

// of reports whether a program on this node renews the Lease, as far as is known.
func (l *leaseTime) of(node types.UID) bool {
	owner, _ := l.owner.Load().(types.UID)
	return owner == "" || owner == node
}

// time is when the Lease runs out; nil without one.
func (l *leaseTime) time() *time.Time {
	until := l.until.Load()
	if until == 0 {
		return nil
	}
	return new(time.Unix(0, until).UTC())
}

// leaseTable keeps the expiry of every Lease of the project's namespace.
type leaseTable struct {
	mu        sync.Mutex
	times     map[string]*leaseTime // Lease name -> expiry; entries stay, they are few
	freshness time.Duration         // of exporters' Leases, instead of their own duration; 0: their own
	leader    *leaderView
}

// leaderView is the scheduler's own leader-election Lease as last seen.
type leaderView struct {
	name     string
	mu       sync.Mutex
	holder   string
	acquired time.Time
	renew    time.Time
	// own is this process's identity in the election, empty until it is known. A
	// process that loses the Lease ends, so that it is the same for its whole life.
	own string
}

func newLeaseTable(leaderName string, freshness time.Duration) *leaseTable {
	return &leaseTable{times: map[string]*leaseTime{}, freshness: freshness, leader: &leaderView{name: leaderName}}
}

// time returns the expiry of a Lease; the pointer is good for ever.
func (t *leaseTable) time(name string) *leaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.timeLocked(name)
}

// timeLocked needs t.mu.
func (t *leaseTable) timeLocked(name string) *leaseTime {
	l, ok := t.times[name]
	if !ok {
		l = &leaseTime{}
		t.times[name] = l
	}
	return l
}

// set records a Lease as seen at now and reports whether one that had run out came
// back, or one of another node of the same name came in its place.
func (t *leaseTable) set(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return false
	}
	if t.leader.name != "" && l.Name == t.leader.name {
		t.leader.see(l)
	}
	term := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	if t.freshness > 0 && strings.HasPrefix(l.Name, ExporterLeasePrefix) {
		term = t.freshness
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lt, renewed := t.timeLocked(l.Name), l.Spec.RenewTime.Time
	switch {
	case lt.renewed.IsZero() && renewed.Before(now):
		lt.seen = renewed
	case !renewed.Equal(lt.renewed): // else it was listed again, or something else in it changed
		lt.seen = now
	}
	lt.renewed = renewed
	until := lt.seen.Add(term).UnixNano()
	lt.term.Store(int64(term))
	old, owner := lt.until.Swap(until), nodeOf(l)
	before, _ := lt.owner.Swap(owner).(types.UID)
	return (old <= now.UnixNano() || before != owner) && until > now.UnixNano()
}

// leaseBack tells whoever waits that the Lease of a node's program had run out and is
// renewed again.
func (s *State) leaseBack(name string) {
	if c := s.cells.get(nodeOfLease(name)); c != nil {
		s.waker.news.add(c, touch{at: s.clock.Now(), regained: true})
		s.touch(c)
	}
}

// nodeOfLease is the node whose exporter or agent renews a Lease of this name; empty for others.
func nodeOfLease(name string) string {
	if node, ok := strings.CutPrefix(name, AgentLeasePrefix); ok {
		return node
	}
	node, _ := strings.CutPrefix(name, ExporterLeasePrefix)
	if node == name {
		return ""
	}
	return node
}

// nodeOf is the UID of the Node that owns a Lease, or empty.
func nodeOf(l *coordinationv1.Lease) types.UID {
	for _, o := range l.OwnerReferences {
		if o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}

// drop records that a Lease was deleted.
func (t *leaseTable) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lt := t.timeLocked(name)
	lt.renewed, lt.seen = time.Time{}, time.Time{}
	lt.until.Store(0)
	lt.owner.Store(types.UID(""))
}

// see takes note of the leader Lease. Its time is read as it stands, since the
// question is about this process's own renewals, made with this clock.
func (v *leaderView) see(l *coordinationv1.Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.renew, v.holder = l.Spec.RenewTime.Time, ""
	if l.Spec.HolderIdentity != nil {
		v.holder = *l.Spec.HolderIdentity
	}
	v.acquired = time.Time{}
	if l.Spec.AcquireTime != nil {
		v.acquired = l.Spec.AcquireTime.Time
	}
}

// lead fails unless this process holds the Lease and renewed it less than term ago.
// It is called by a process that is or was the leader: nobody else schedules. So the
// first current holder it sees who was elected on this host since the process
// started is the process itself: identities begin with the host's name, and Lease
// times of this host are of this clock.
func (v *leaderView) lead(host string, since, now time.Time, term time.Duration) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	age := now.Sub(v.renew)
	if v.own == "" && age <= term && strings.HasPrefix(v.holder, host+"_") && !v.acquired.Before(since) {
		v.own = v.holder
	}
	switch {
	case v.own == "" || v.holder != v.own:
		return fmt.Errorf("%w: it is held by %q", ErrNotLeader, v.holder)
	case age > term:
		return fmt.Errorf("%w: it was renewed %v ago", ErrNotLeader, age.Round(time.Millisecond))
	}
	return nil
}

// snapshot returns who holds the leader Lease and when it was last renewed.
func (v *leaderView) snapshot() (holder string, renew time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holder, v.renew
}

// elected is when the present holder came to hold the Lease.
func (v *leaderView) elected() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.acquired
}

// known reports whether this process's identity is known.
func (v *leaderView) known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.own != ""
}
