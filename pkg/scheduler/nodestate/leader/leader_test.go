// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// elected is the content of a Lease at a moment, in seconds since the process started.
type elected struct {
	holder   string
	acquired int
	renewed  int
}

// at returns the leader Lease for a process started at start.
func (e elected) at(start time.Time) *coordinationv1.Lease {
	since := func(s int) *metav1.MicroTime {
		return new(metav1.NewMicroTime(start.Add(time.Duration(s) * time.Second)))
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "nvtopo-scheduler"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &e.holder, AcquireTime: since(e.acquired), RenewTime: since(e.renewed), LeaseDurationSeconds: new(int32(15)),
		},
	}
}

// TestLeaderCheck follows processes through terms of their own and of others: each step has the content
// of the Lease and the time of the check.
func TestLeaderCheck(t *testing.T) {
	type step struct {
		lease elected
		at    int
		want  bool
	}
	for name, steps := range map[string][]step{
		"a leader that renews":                               {{elected{"host_me", 1, 1}, 2, true}, {elected{"host_me", 1, 9}, 20, true}},
		"a leader that does not renew in time":               {{elected{"host_me", 1, 1}, 2, true}, {elected{"host_me", 1, 1}, 17, false}},
		"one that was late and renews again":                 {{elected{"host_me", 1, 1}, 2, true}, {elected{"host_me", 1, 1}, 17, false}, {elected{"host_me", 1, 18}, 19, true}},
		"a former leader after its successor's election":     {{elected{"host_me", 1, 1}, 2, true}, {elected{"other_you", 20, 20}, 21, false}},
		"a former leader beside a successor on its host":     {{elected{"host_me", 1, 1}, 2, true}, {elected{"host_you", 20, 20}, 21, false}},
		"a former leader that decides anew, again and again": {{elected{"host_me", 1, 1}, 2, true}, {elected{"other_you", 20, 22}, 22, false}, {elected{"other_you", 20, 24}, 24, false}},
		"a new leader that has not heard of its election":    {{elected{"other_you", -50, -1}, 1, false}, {elected{"host_me", 1, 1}, 2, true}},
		"one whose predecessor was a process of this host":   {{elected{"host_before", -50, -2}, 1, false}, {elected{"host_me", 1, 1}, 2, true}},
		"one after a standby on this host that led":          {{elected{"host_you", 5, 30}, 46, false}, {elected{"host_me", 46, 46}, 47, true}},
		"a host whose name begins like another's":            {{elected{"host-2_you", 1, 1}, 2, false}},
		"nobody leads": {{elected{"", 1, 1}, 2, false}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1_700_000_000, 0)
			l := New(clocktesting.NewFakeClock(start), Config{Lease: "nvtopo-scheduler", Term: 15 * time.Second, Host: "host"})
			for i, s := range steps {
				l.See(s.lease.at(start))
				err := l.check(start.Add(time.Duration(s.at) * time.Second))
				if (err == nil) != s.want || err != nil && !errors.Is(err, ErrNotLeader) {
					t.Errorf("step %d, %+v asked at %d s: %v, want leading: %t", i, s.lease, s.at, err, s.want)
				}
			}
		})
	}
}

// TestStandbyCheck: a standby may call Check. A standby that called it to report why a gang waits took
// the leader beside it on its host for itself, and carried out nothing when it was elected.
func TestStandbyCheck(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	clk := clocktesting.NewFakeClock(start)
	l := New(clk, Config{Lease: "nvtopo-scheduler", Term: 15 * time.Second, Host: "host"})
	for name, step := range map[string]struct {
		lease elected
		want  bool
	}{
		"another host's leader":            {elected{"other_you", 1, 1}, false},
		"a leader of before":               {elected{"host_you", -5, 1}, false},
		"a leader that does not renew":     {elected{"host_you", -50, -20}, false},
		"a leader that was elected lately": {elected{"host_you", 1, 1}, true},
	} {
		l.See(step.lease.at(start))
		if got := l.MayLead(); got != step.want {
			t.Errorf("%s: may lead: %t, want %t", name, got, step.want)
		}
	}
	clk.SetTime(start.Add(20 * time.Second))
	l.See(elected{"host_me", 20, 20}.at(start))
	if err := l.check(clk.Now()); err != nil || !l.MayLead() {
		t.Errorf("after its own election: %v, may lead: %t", err, l.MayLead())
	}
	l.See(elected{"host_you", 20, 20}.at(start))
	if l.MayLead() {
		t.Error("it may lead though another one does")
	}
}
