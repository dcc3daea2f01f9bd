// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// elected is the content of a Lease at a moment, in seconds since the process started.
type elected struct {
	holder   string
	acquired int
	renewed  int
}

// see shows the leader Lease to a process started at the clock's time.
func (e *testEnv) see(start time.Time, by elected) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	l := lease("nvtopo-scheduler", at(by.renewed), testConfig().LeaderTerm)
	acquired := metav1.NewMicroTime(at(by.acquired))
	l.Spec.HolderIdentity, l.Spec.AcquireTime = &by.holder, &acquired
	e.Binder.leader.See(l)
}

// elect has the process take part in elections from now on; it returns that time.
func (e *testEnv) elect() time.Time {
	config := testConfig()
	config.LeaderLease, config.Host = "nvtopo-scheduler", "host"
	e.Binder.leader = leader.New(e.clock, config.leader())
	e.handlers.leader, e.Diagnosis.leader = e.Binder.leader, e.Binder.leader
	return e.clock.now
}

// TestFormerLeader: a former leader makes no new decision effective. A leader that was paused goes on
// until it gives up the renewal, and its new choices, made when it knew of its successor, must not be
// carried out either.
func TestFormerLeader(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	start := r.elect()
	choose := func(name string) error {
		pod := schedtest.Pod(name).GPUs(1).Obj()
		info, l := r.view(t)
		if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
		return r.Binder.Attempt(pod.UID, "n").MayCarryOut(t.Context())
	}
	r.see(start, elected{"host_me", 0, 0})
	if err := choose("before"); err != nil {
		t.Errorf("the leader may not carry out its choice: %v", err)
	}
	r.clock.now = start.Add(40 * time.Second)
	r.see(start, elected{"host_you", 20, 39})
	if err := choose("after"); !errors.Is(err, leader.ErrNotLeader) {
		t.Errorf("a choice made under a successor's Lease: %v, want %v", err, leader.ErrNotLeader)
	}
	if err := r.Binder.leader.Check(t.Context()); !errors.Is(err, leader.ErrNotLeader) {
		t.Errorf("clearing an earlier choice under a successor's Lease: %v, want %v", err, leader.ErrNotLeader)
	}
}
