// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// leaderView is the scheduler's own leader-election Lease as last seen.
type leaderView struct {
	name string

	mu       sync.Mutex
	holder   string
	acquired time.Time
	renew    time.Time
	// own is this process's identity in the election, empty until it is known. A
	// process that loses the Lease ends, so that it is the same for its whole life.
	own string
}

// see takes note of a Lease if it is the leader's. Its time is read as it stands, since
// the question is about this process's own renewals, made with this clock.
func (v *leaderView) see(l *coordinationv1.Lease) {
	if v.name == "" || l.Name != v.name || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return
	}
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
