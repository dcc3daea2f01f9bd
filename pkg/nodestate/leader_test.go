// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// elected is what a Lease says at a moment, in seconds since the process started.
type elected struct {
	holder   string
	acquired int
	renewed  int
}

// see shows a process started at the clock's time the leader Lease.
func (r *rig) see(start time.Time, e elected) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	l := lease("nvtopo-scheduler", at(e.renewed), r.config.LeaderTerm)
	acquired := metav1.NewMicroTime(at(e.acquired))
	l.Spec.HolderIdentity, l.Spec.AcquireTime = &e.holder, &acquired
	r.leader.see(l)
}

// TestLeaderCheck follows processes through terms of their own and of others: each
// step is what the Lease said and when the question was asked.
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
			r := newRig(t, "dgx1-v100")
			r.config.Host, r.leader.name = "host", "nvtopo-scheduler"
			start := r.clock.now
			for i, s := range steps {
				r.clock.now = start.Add(time.Duration(s.at) * time.Second)
				r.see(start, s.lease)
				err := r.leader.lead(r.config.Host, start, r.clock.now, r.config.LeaderTerm)
				if (err == nil) != s.want || err != nil && !errors.Is(err, ErrNotLeader) {
					t.Errorf("step %d, %+v asked at %d s: %v, want leading: %t", i, s.lease, s.at, err, s.want)
				}
			}
		})
	}
}

// TestAFormerLeaderDoesNotDecideAnew: a leader that was paused goes on for as long as
// it takes to give up the renewal, and its new choices, made when it knew of its
// successor, must not be carried out either.
func TestAFormerLeaderDoesNotDecideAnew(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	r.config.Host, r.config.LeaderLease, r.leader.name = "host", "nvtopo-scheduler", "nvtopo-scheduler"
	start := r.started
	choose := func(name string) error {
		pod := gpuPod(name, 1)
		info, l := r.view(t)
		if _, reason := r.Reserve(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
		return r.Attempt(pod.UID, "n").CheckLeader(t.Context())
	}
	r.see(start, elected{"host_me", 0, 0})
	if err := choose("before"); err != nil {
		t.Errorf("the leader may not carry out its choice: %v", err)
	}
	r.clock.now = start.Add(40 * time.Second)
	r.see(start, elected{"host_you", 20, 39})
	if err := choose("after"); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a choice made under a successor's Lease: %v, want %v", err, ErrNotLeader)
	}
	if err := r.Leads(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("clearing an earlier choice under a successor's Lease: %v, want %v", err, ErrNotLeader)
	}
}
