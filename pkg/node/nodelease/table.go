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

// Expiry is until when a Lease counts, by the clock of this process.
//
// The clocks of nodes are not trusted. A Lease counts for its term from when this
// process saw it renewed: its renewTime only tells one renewal from the next, as in
// leader election and for the Leases of kubelets. A renewal that is there already
// when the Lease is first seen may be old, so it is believed to be as old as it says,
// and never to be of the future. So after a start a node that has been silent for a day
// does not count, nor one whose clock is far behind until its next renewal is seen.
type Expiry struct {
	until atomic.Int64 // Unix nanoseconds; 0 when there is no Lease
	term  atomic.Int64 // nanoseconds after a renewal
	owner atomic.Value // types.UID of the Node that the renewing program runs on, empty if unknown

	renewed time.Time // the last renewal seen, by the node's clock; guarded by the table's mutex
	seen    time.Time // when that was, by ours; guarded by the table's mutex
	lived   bool      // it was fresh when Expired looked last; guarded by the table's mutex
}

// Fresh reports whether the Lease counts now.
func (l *Expiry) Fresh(now time.Time) bool { return now.UnixNano() < l.until.Load() }

// Term is for how long the Lease counts after a renewal.
func (l *Expiry) Term() time.Duration { return time.Duration(l.term.Load()) }

// Of reports whether a program on this node renews the Lease, as far as is known.
func (l *Expiry) Of(node types.UID) bool {
	owner, _ := l.owner.Load().(types.UID)
	return owner == "" || owner == node
}

// LapsesAt is when the Lease runs out, in Unix nanoseconds; 0 without one.
func (l *Expiry) LapsesAt() int64 { return l.until.Load() }

// Until is when the Lease runs out; nil without one.
func (l *Expiry) Until() *time.Time {
	until := l.until.Load()
	if until == 0 {
		return nil
	}
	return new(time.Unix(0, until).UTC())
}

// Table keeps the expiry of every Lease of the project's namespace. It may be used from
// several goroutines.
type Table struct {
	mu        sync.Mutex
	times     map[string]*Expiry // Lease name -> expiry; guarded by mu
	freshness time.Duration      // of exporters' Leases, instead of their own duration; 0: their own
}

// NewTable returns a table without Leases. freshness is how long after a renewal an
// exporter's Lease counts; 0: for its own duration.
func NewTable(freshness time.Duration) *Table {
	return &Table{times: map[string]*Expiry{}, freshness: freshness}
}

// Get returns the expiry of a Lease. The pointer is good until Forget drops the name.
func (t *Table) Get(name string) *Expiry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.getLocked(name)
}

// Fresh reports whether a Lease counts now. It remembers nothing of a name that it does not know.
func (t *Table) Fresh(name string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.times[name]
	return ok && l.Fresh(now)
}

// getLocked needs t.mu.
func (t *Table) getLocked(name string) *Expiry {
	l, ok := t.times[name]
	if !ok {
		l = &Expiry{}
		t.times[name] = l
	}
	return l
}

// Set records a Lease as seen at now and reports whether one that had run out came
// back, or one of another node of the same name came in its place.
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
	case !renewed.Equal(lt.renewed): // else it was listed again, or something else in it changed
		lt.seen = now
	}
	lt.renewed = renewed
	until := lt.seen.Add(term).UnixNano()
	lt.term.Store(int64(term))
	old, owner := lt.until.Swap(until), ownerOf(l)
	before, _ := lt.owner.Swap(owner).(types.UID)
	return (old <= now.UnixNano() || before != owner) && until > now.UnixNano()
}

// NodeOf is the node whose exporter or agent renews a Lease of this name; empty for others.
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

// ownerOf is the UID of the Node that owns a Lease, or empty.
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

// Forget drops these Leases from the table, and reports true, unless one of them exists. Whoever
// calls it knows that nobody goes on using what Get returned of them.
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

// Expired returns the Leases that ran out since the last call.
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
