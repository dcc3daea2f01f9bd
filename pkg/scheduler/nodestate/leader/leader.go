// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
)

// ErrNotLeader is the error if the scheduler may have lost its leadership since it chose.
var ErrNotLeader = errors.New("the leader Lease is not known to be this process's: this choice is not carried out")

// ownElection is how long the informer may take to show this process's own election.
const ownElection = time.Second

// Config identifies the leader Lease and this process's host.
type Config struct {
	Lease          string        // name of the scheduler's own Lease; empty: nothing is checked
	Term           time.Duration // how long after its last renewal the holder keeps the Lease
	Host           string        // this host's name, with which its identity in the election begins
	RequestTimeout time.Duration // timeout of Confirm's requests
}

// Leader is the scheduler's own leader-election Lease as last seen. Make one with New when the process
// starts.
type Leader struct {
	config  Config
	clock   clock.Clock
	started time.Time
	pods    ListPods // nil until Connect

	mu       sync.Mutex // guards all below
	holder   string
	acquired time.Time
	renew    time.Time
	// own is this process's identity in the election, empty until it is known. A process that loses the
	// Lease ends, so the identity is the same for its whole life.
	own string
}

// New returns a Leader that has seen no Lease.
func New(clk clock.Clock, config Config) *Leader {
	return &Leader{config: config, clock: clk, started: clk.Now()}
}

// Connect sets the function with which Confirm lists pods. Call it once, before Confirm.
func (l *Leader) Connect(pods ListPods) { l.pods = pods }

// See records a Lease if it is the leader's. Its times are used without correction, since only this
// process's own renewals matter, made with this clock.
func (l *Leader) See(lease *coordinationv1.Lease) {
	if l.config.Lease == "" || lease.Name != l.config.Lease || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew, l.holder = lease.Spec.RenewTime.Time, ""
	if lease.Spec.HolderIdentity != nil {
		l.holder = *lease.Spec.HolderIdentity
	}
	l.acquired = time.Time{}
	if lease.Spec.AcquireTime != nil {
		l.acquired = lease.Spec.AcquireTime.Time
	}
}

// Check fails unless this process holds the leader Lease and has renewed it within its term: a former
// leader that was paused goes on deciding until it gives up the renewal, and its copy of the Lease is
// only as current as that of the pods. It waits a moment for the first Lease of its own.
func (l *Leader) Check(ctx context.Context) error {
	if l.config.Lease == "" {
		return nil
	}
	err := l.check(l.clock.Now())
	if err == nil || l.known() {
		return err
	}
	for deadline := l.clock.Now().Add(ownElection); err != nil && l.clock.Now().Before(deadline); err = l.check(l.clock.Now()) {
		select {
		case <-ctx.Done():
			return err
		case <-l.clock.After(ownElection / 20):
		}
	}
	return err
}

// MayLead reports whether this process leads, according to the Lease. A standby may call it: unlike Check
// it does not adopt an identity, so beside a leader on the same host the result may be wrong. Use it only
// for actions that do no harm when two processes do them.
func (l *Leader) MayLead() bool {
	if l.config.Lease == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clock.Since(l.renew) > l.config.Term {
		return false
	}
	if l.own != "" {
		return l.holder == l.own
	}
	return strings.HasPrefix(l.holder, l.config.Host+"_") && !l.acquired.Before(l.started)
}

// check fails unless this process holds the Lease and renewed it less than its term ago. It is called
// only by a process that is or was the leader, since others do not schedule. So the first current holder
// that was elected on this host since the process started is the process itself: identities begin with
// the host's name, and Lease times of this host are of this clock.
func (l *Leader) check(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := now.Sub(l.renew)
	if l.own == "" && age <= l.config.Term && strings.HasPrefix(l.holder, l.config.Host+"_") && !l.acquired.Before(l.started) {
		l.own = l.holder
	}
	switch {
	case l.own == "" || l.holder != l.own:
		return fmt.Errorf("%w: it is held by %q", ErrNotLeader, l.holder)
	case age > l.config.Term:
		return fmt.Errorf("%w: it was renewed %v ago", ErrNotLeader, age.Round(time.Millisecond))
	}
	return nil
}

// Holder returns the holder of the leader Lease; empty if unknown.
func (l *Leader) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// elected returns when the present holder acquired the Lease.
func (l *Leader) elected() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acquired
}

// Known reports whether Check is about this process: its identity in the election is known, or it takes
// part in none.
func (l *Leader) Known() bool { return l.config.Lease == "" || l.known() }

// known reports whether this process's identity is known.
func (l *Leader) known() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own != ""
}
