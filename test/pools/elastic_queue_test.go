// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// oneQueuePool is a pool of one queue with a policy.
const oneQueuePool = `
  poolType: gpu
  capacity: {total: 8}
  defaultQuota: {}
  queues: [{name: q, policy: %s}]`

// TestFIFOAndPriority is scenario 11: in a queue of the policy fifo a job that does not fit holds back
// later ones of any priority; in one of the policy priority it does not.
func TestFIFOAndPriority(t *testing.T) {
	t.Parallel()
	for policy, passes := range map[string]bool{"fifo": false, "priority": true} {
		t.Run(policy, func(t *testing.T) {
			s := newScenario(t, dgx(1)...)
			s.pool(t, fmt.Sprintf(oneQueuePool, policy), "a")
			s.single(t, "a", "r", 4, 0, "q")
			s.phase(t, "a", "r", poolv1alpha1.JobRunning)
			nextSecond(t)
			s.single(t, "a", "j1", 8, 0, "q")
			s.noQuota(t, "a", "j1")
			nextSecond(t)
			s.single(t, "a", "j2", 2, 0, "q")
			if passes {
				s.phase(t, "a", "j2", poolv1alpha1.JobRunning)
			} else {
				s.settled(t)
				s.phase(t, "a", "j2", poolv1alpha1.JobQueued)
			}
			s.phase(t, "a", "j1", poolv1alpha1.JobQueued)
			s.succeed(t, "a", "r")
			if passes {
				s.succeed(t, "a", "j2")
			}
			s.phase(t, "a", "j1", poolv1alpha1.JobRunning)
			if !passes {
				s.phase(t, "a", "j2", poolv1alpha1.JobQueued)
				s.succeed(t, "a", "j1")
				s.phase(t, "a", "j2", poolv1alpha1.JobRunning)
			}
			if got := s.evictions(); len(got) > 0 {
				t.Errorf("evictions: %+v", got)
			}
		})
	}
}

// TestPriorityOrder is scenario 12: of the waiting jobs the one of the highest priority is next.
func TestPriorityOrder(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(oneQueuePool, "priority"), "a")
	s.single(t, "a", "r", 8, 20, "q")
	s.phase(t, "a", "r", poolv1alpha1.JobRunning)
	for _, priority := range []int{5, 1, 9} {
		name := fmt.Sprintf("j%d", priority)
		s.single(t, "a", name, 8, priority, "q")
		s.noQuota(t, "a", name)
	}
	before := "r"
	for _, next := range []string{"j9", "j5", "j1"} {
		s.succeed(t, "a", before)
		s.phase(t, "a", next, poolv1alpha1.JobRunning)
		before = next
	}
	// Kueue tries waiting jobs one by one. If quota comes free meanwhile, the next one has it until one of a
	// higher priority preempts it.
	early := map[string]bool{}
	for _, e := range s.evictions() {
		if e.reason != kueue.EvictedByPreemption {
			continue
		}
		if early[e.job] = true; e.job == names.BaseJob("j9") {
			t.Errorf("the job of the highest priority was preempted: %s", e.detail)
		}
	}
	at := func(name string) metav1.Time { return *s.elastic(t, "a", name).Status.StartTime }
	for _, pair := range [][2]string{{"j9", "j5"}, {"j5", "j1"}, {"j9", "j1"}} {
		first, second := at(pair[0]), at(pair[1])
		if first.After(second.Time) && !early[names.BaseJob(pair[1])] {
			t.Errorf("%s started at %v, and %s, of a lower priority, at %v", pair[0], first, pair[1], second)
		}
	}
}

// TestVainEviction is scenario 16: jobs of a queue that must not preempt evict no other job; and scenario
// 26: nor does a job that could not start anyway.
func TestVainEviction(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 8}
  defaultQuota: {limit: 8}
  queues:
  - {name: polite, preemptionPolicy: Never}
  - {name: rude, maxCapacity: 4, preemptionPolicy: PreemptLowerPriority}`, "a")
	s.single(t, "a", "low", 4, 1, "polite")
	s.single(t, "a", "lower", 4, 0, "rude")
	s.phase(t, "a", "low", poolv1alpha1.JobRunning)
	s.phase(t, "a", "lower", poolv1alpha1.JobRunning)

	s.single(t, "a", "high", 2, 100, "polite")
	s.single(t, "a", "big", 5, 100, "rude") // more than its queue may ever have
	s.noQuota(t, "a", "high")
	want := fmt.Sprintf("asks for 5 devices, and the limit of tenant %s in queue rude in ComputePool %s is 4: it can never start", s.tenant("a"), s.name)
	if got := s.condition(t, "a", "big", poolv1alpha1.ConditionAdmitted, metav1.ConditionFalse, elasticjob.ReasonExceedsLimit); !strings.Contains(got, want) {
		t.Errorf("the job that could not start anyway says %q, want %q in it", got, want)
	}
	s.settled(t)
	if got := s.evictions(); len(got) > 0 {
		t.Errorf("evictions: %+v", got)
	}
	s.phase(t, "a", "low", poolv1alpha1.JobRunning)
	s.phase(t, "a", "lower", poolv1alpha1.JobRunning)
}

// TestReclaimOrder is scenario 19: a tenant reclaims its guarantee from the lowest borrowers, and no
// more.
func TestReclaimOrder(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 16}
  quotas:
  - {tenant: POOL-a, limit: 16, guaranteed: 8}
  - {tenant: POOL-b, limit: 16, guaranteed: 8}`, "a", "b")
	some := func(tenant, prefix string, n, priority int) {
		for i := range n {
			s.single(t, tenant, fmt.Sprintf("%s%d", prefix, i), 1, priority, "")
		}
	}
	some("a", "five", 12, 5)
	s.waitBound(t, map[string]int64{"a": 12})
	nextSecond(t)
	some("a", "one", 4, 1)
	s.waitBound(t, map[string]int64{"a": 16})

	some("b", "first", 4, 0)
	s.waitBound(t, map[string]int64{"a": 12, "b": 4})
	want := map[string]int{"one": 4}
	if diff := cmp.Diff(want, byPrefix(s.evicted("a"))); diff != "" {
		t.Fatalf("after 4 jobs of b (-want +evicted)\n%s", diff)
	}
	some("b", "second", 4, 0)
	s.waitBound(t, map[string]int64{"a": 8, "b": 8})
	want["five"] = 4
	if diff := cmp.Diff(want, byPrefix(s.evicted("a"))); diff != "" {
		t.Fatalf("after 8 jobs of b (-want +evicted)\n%s", diff)
	}
	some("b", "third", 1, 0)
	s.noQuota(t, "b", "third0")
	s.settled(t)
	s.waitBound(t, map[string]int64{"a": 8, "b": 8})
	if diff := cmp.Diff(want, byPrefix(s.evicted("a"))); diff != "" {
		t.Errorf("in the end (-want +evicted)\n%s", diff)
	}
	if got := s.evicted("b"); len(got) > 0 {
		t.Errorf("evicted of b: %v", got)
	}
	preempted := 0
	for i := range 4 {
		preempted += int(s.elastic(t, "a", fmt.Sprintf("one%d", i)).Status.Preemptions)
	}
	if preempted != 4 {
		t.Errorf("the four jobs of priority 1 count %d preemptions, want 4", preempted)
	}
}

// byPrefix counts evicted ElasticJobs of one replica by their names without the number.
func byPrefix(evicted map[string]int) map[string]int {
	out := map[string]int{}
	for _, job := range slices.Sorted(maps.Keys(evicted)) {
		out[strings.TrimRight(strings.TrimSuffix(job, "-base"), "0123456789")] += evicted[job]
	}
	return out
}

// TestPreemptedJobPhases is scenario 23: within a tenant the lowest goes first, and equals never evict
// each other; and scenario 24: an evicted job goes through the phases, and runs again when there is room.
func TestPreemptedJobPhases(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.single(t, "a", "one", 4, 1, "")
	s.single(t, "a", "three", 4, 3, "")
	s.phase(t, "a", "one", poolv1alpha1.JobRunning)
	s.phase(t, "a", "three", poolv1alpha1.JobRunning)
	seen := s.watchPhases(t, "a", "one")

	s.single(t, "a", "equal", 4, 1, "")
	s.noQuota(t, "a", "equal")
	s.settled(t)
	if got := s.evictions(); len(got) > 0 {
		t.Fatalf("a job of priority 1 had somebody evicted: %+v", got)
	}
	s.remove(t, s.elastic(t, "a", "equal"))

	s.single(t, "a", "five", 4, 5, "")
	s.phase(t, "a", "five", poolv1alpha1.JobRunning)
	s.phase(t, "a", "one", poolv1alpha1.JobQueued)
	if diff := cmp.Diff(map[string]int{names.BaseJob("one"): 1}, s.evicted("a")); diff != "" {
		t.Errorf("(-want +evicted)\n%s", diff)
	}
	s.succeed(t, "a", "five")
	s.phase(t, "a", "one", poolv1alpha1.JobRunning)
	want := []poolv1alpha1.JobPhase{
		poolv1alpha1.JobRunning, poolv1alpha1.JobPreempted, poolv1alpha1.JobQueued, poolv1alpha1.JobRunning,
	}
	s.waitFor(t, "its phases are told", func(context.Context) (bool, string) {
		got := seen.all()
		return slices.Equal(got, want), fmt.Sprintf("got %v, want %v", got, want)
	})
	if got := s.elastic(t, "a", "one").Status.Preemptions; got != 1 {
		t.Errorf("%d preemptions, want 1", got)
	}
	s.events(t, "a", "one", elasticjob.EventPreempted)
}
