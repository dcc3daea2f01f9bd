// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Expiry is the time until which a Lease is valid, by the clock of this process.
//
// The clocks of nodes are not trusted. A Lease is valid for its term from when this process saw it
// renewed: its renewTime only distinguishes renewals, as in leader election and for the Leases of
// kubelets. A renewal that is present when the Lease is first seen may be old, so it is taken to be as
// old as its renewTime, and never to be of the future. So after a start a node that has been silent for a
// day is not fresh, nor one whose clock is far behind until its next renewal is seen.
type Expiry struct {
	until atomic.Int64 // Unix nanoseconds; 0 without a Lease
	term  atomic.Int64 // nanoseconds after a renewal
	owner atomic.Value // types.UID of the Node that the renewing program runs on, empty if unknown

	renewed time.Time // the last renewal seen, by the node's clock; guarded by the table's mutex
	seen    time.Time // time of that, by this process's clock; guarded by the table's mutex
	lived   bool      // it was fresh at the last call of Expired; guarded by the table's mutex
}

// Fresh reports whether the Lease is valid now.
func (l *Expiry) Fresh(now time.Time) bool { return now.UnixNano() < l.until.Load() }

// Term returns how long the Lease is valid after a renewal.
func (l *Expiry) Term() time.Duration { return time.Duration(l.term.Load()) }

// Of reports whether a program on this node renews the Lease; true if the owner is unknown.
func (l *Expiry) Of(node types.UID) bool {
	owner, _ := l.owner.Load().(types.UID)
	return owner == "" || owner == node
}

// LapsesAt returns the expiry in Unix nanoseconds; 0 without a Lease.
func (l *Expiry) LapsesAt() int64 { return l.until.Load() }

// Until returns the expiry; nil without a Lease.
func (l *Expiry) Until() *time.Time {
	until := l.until.Load()
	if until == 0 {
		return nil
	}
	return new(time.Unix(0, until).UTC())
}

// Table holds the expiry of every Lease of the project's namespace. It is safe for concurrent use.
type Table struct {
	mu        sync.Mutex
	times     map[string]*Expiry // Lease name -> expiry; guarded by mu
	freshness time.Duration      // of exporters' Leases, instead of their own duration; 0: their own
}

// NewTable returns a table without Leases. freshness is how long after a renewal an exporter's Lease is
// valid; 0: for its own duration.
func NewTable(freshness time.Duration) *Table {
	return &Table{times: map[string]*Expiry{}, freshness: freshness}
}

// Get returns the expiry of a Lease. The pointer is valid until Forget drops the name.
func (t *Table) Get(name string) *Expiry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.getLocked(name)
}

// Fresh reports whether a Lease is valid now. It adds no entry for an unknown name.
func (t *Table) Fresh(name string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.times[name]
	return ok && l.Fresh(now)
}

// getLocked returns the expiry, a new one for an unknown name. It needs t.mu.
func (t *Table) getLocked(name string) *Expiry {
	l, ok := t.times[name]
	if !ok {
		l = &Expiry{}
		t.times[name] = l
	}
	return l
}

// Set records a Lease as seen at now and reports whether an expired one was renewed, or a Lease of
// another node of the same name replaced it.
func (t *Table) Set(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return false
	}
	term := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	if t.freshness > 0 && strings.HasPrefix(l.Name, ExporterPrefix) {
		term = t.freshness
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lt, renewed := t.getLocked(l.Name), l.Spec.RenewTime.Time
	switch {
	case lt.renewed.IsZero() && renewed.Before(now):
		lt.seen = renewed
	case !renewed.Equal(lt.renewed): // else it was listed again, or another field changed
		lt.seen = now
	}
	lt.renewed = renewed
	until := lt.seen.Add(term).UnixNano()
	lt.term.Store(int64(term))
	old, owner := lt.until.Swap(until), ownerOf(l)
	before, _ := lt.owner.Swap(owner).(types.UID)
	return (old <= now.UnixNano() || before != owner) && until > now.UnixNano()
}

// NodeOf returns the node whose exporter or agent renews a Lease of this name; empty for others.
func NodeOf(name string) string {
	if node, ok := strings.CutPrefix(name, AgentPrefix); ok {
		return node
	}
	node, _ := strings.CutPrefix(name, ExporterPrefix)
	if node == name {
		return ""
	}
	return node
}

// ownerOf returns the UID of the Node that owns a Lease, or "".
func ownerOf(l *coordinationv1.Lease) types.UID {
	for _, o := range l.OwnerReferences {
		if o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}

// Drop records that a Lease was deleted.
func (t *Table) Drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lt := t.getLocked(name)
	lt.renewed, lt.seen = time.Time{}, time.Time{}
	lt.until.Store(0)
	lt.owner.Store(types.UID(""))
}

// Forget drops these Leases from the table and returns true, unless one of them exists. The caller
// ensures that the results of Get for them are no longer used.
func (t *Table) Forget(names ...string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if l, ok := t.times[name]; ok && (!l.renewed.IsZero() || l.until.Load() != 0) {
			return false
		}
	}
	for _, name := range names {
		delete(t.times, name)
	}
	return true
}

// Expired returns the Leases that expired since the last call.
func (t *Table) Expired(now time.Time) (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, l := range t.times {
		switch fresh := l.Fresh(now); {
		case fresh:
			l.lived = true
		case l.lived:
			l.lived = false
			names = append(names, name)
		}
	}
	return names
}
