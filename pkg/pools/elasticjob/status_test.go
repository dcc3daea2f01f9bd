// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// summary is the part of a status that a test checks.
type summary struct {
	Phase                   v1alpha1.JobPhase
	Replicas, Extra, Ready  int32
	Preemptions             int32
	Admitted, Scaled, Other string // "status reason"; Other is of whichever condition the test names
}

func summarize(s *v1alpha1.ElasticJobStatus, other string) summary {
	say := func(kind string) string {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			return string(c.Status) + " " + c.Reason
		}
		return ""
	}
	return summary{
		Phase: s.Phase, Replicas: s.Replicas, Extra: s.ExtraReplicas, Ready: s.ReadyReplicas, Preemptions: s.Preemptions,
		Admitted: say(v1alpha1.ConditionAdmitted), Scaled: say(v1alpha1.ConditionScaled), Other: say(other),
	}
}

func TestStatus(t *testing.T) {
	type job = func(*v1alpha1.ElasticJob)
	tooLong := "DeactivatedDueToMaximumExecutionTimeExceeded"
	found := func(n int32) job { return func(ej *v1alpha1.ElasticJob) { ej.Status.Preemptions = n } }
	tests := map[string]struct {
		job      []job
		base     *part
		extras   map[int32]*part
		findings findings
		other    string
		want     summary
	}{
		"there is no pool": {
			findings: findings{blocked: ReasonPoolNotFound, why: "there is no ComputePool pool"}, other: v1alpha1.ConditionTemplateValid,
			want: summary{Phase: v1alpha1.JobPending, Admitted: "False PoolNotFound", Scaled: "False NotAdmitted", Other: "Unknown PoolNotFound"},
		},
		"the template is none": {
			findings: findings{checked: true, faults: []string{"spec.template: x"}, blocked: ReasonTemplateInvalid, why: "spec.template: x"}, other: v1alpha1.ConditionTemplateValid,
			want: summary{Phase: v1alpha1.JobPending, Admitted: "False TemplateInvalid", Scaled: "False NotAdmitted", Other: "False Invalid"},
		},
		"the name is taken": {
			findings: findings{checked: true, taken: "Job team-a/train-base"},
			want:     summary{Phase: v1alpha1.JobPending, Admitted: "False NameTaken", Scaled: "False NotAdmitted"},
		},
		"Kueue has not looked": {
			base: newBase(unseen), want: summary{Phase: v1alpha1.JobQueued, Admitted: "False WaitingForQuota", Scaled: "False NotAdmitted"},
		},
		"it waits for quota": {
			base: newBase(queued), want: summary{Phase: v1alpha1.JobQueued, Admitted: "False WaitingForQuota", Scaled: "False NotAdmitted"},
		},
		"it waits for an admission check": {
			base: newBase(queued, func(p *part) {
				set(p, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "")
				p.workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckPending, Message: "asks"}}
			}),
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False WaitingForAdmissionCheck", Scaled: "False NotAdmitted"},
		},
		"it waits for the pool": {
			job: []job{protectedJob}, base: newBase(gatedJob), other: v1alpha1.ConditionProtectedCapacityGranted,
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False WaitingForProtectedCapacity", Scaled: "False NotAdmitted", Other: "False WaitingForProtectedCapacity"},
		},
		"it waits for the pool, which says why": {
			job: []job{protectedJob}, base: newBase(gatedJob, toldWhy(names.ProtectedAtLimit+": its tenant has all that it may")), other: v1alpha1.ConditionProtectedCapacityGranted,
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False ProtectedLimitReached", Scaled: "False NotAdmitted", Other: "False ProtectedLimitReached"},
		},
		"it waits for the pool, and somebody else says why": {
			job: []job{protectedJob}, base: newBase(gatedJob, toldWhy("no reason: x")), other: v1alpha1.ConditionProtectedCapacityGranted,
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False WaitingForProtectedCapacity", Scaled: "False NotAdmitted", Other: "False WaitingForProtectedCapacity"},
		},
		"it waits for the pool and can never start": {
			job: []job{protectedJob}, base: newBase(gatedJob), findings: findings{checked: true, never: "too large"}, other: v1alpha1.ConditionProtectedCapacityGranted,
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False ExceedsLimit", Scaled: "False NotAdmitted", Other: "False ExceedsLimit"},
		},
		"it can never start": {
			base: newBase(queued), findings: findings{checked: true, never: "too large"},
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False ExceedsLimit", Scaled: "False NotAdmitted"},
		},
		"it is pinned": {
			job: []job{protectedJob}, base: newBase(), other: v1alpha1.ConditionProtectedCapacityGranted,
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 2, Ready: 1, Admitted: "True Admitted", Scaled: "False QuotaLimit", Other: "True Pinned"},
		},
		"it runs at its minimum": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2, queued), 3: newExtra(3, unseen)},
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 2, Ready: 1, Admitted: "True Admitted", Scaled: "False QuotaLimit"},
		},
		"it runs at its maximum": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3)},
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 4, Extra: 2, Ready: 3, Admitted: "True Admitted", Scaled: "True AtMaximum"},
		},
		"it shrinks": {
			job: []job{upTo(2)}, base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, inactive)},
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 3, Extra: 1, Ready: 3, Admitted: "True Admitted", Scaled: "False Shrinking"},
		},
		"its extra was evicted by the scheduler": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, endedJob(batchv1.JobFailed, time.Second))},
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 3, Extra: 1, Ready: 2, Admitted: "True Admitted", Scaled: "False ExtraReplicasFailed"},
		},
		"an extra's name is taken": {
			base: newBase(), findings: findings{checked: true, taken: "Job team-a/train-x2"},
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 2, Ready: 1, Admitted: "True Admitted", Scaled: "False NameTaken"},
		},
		"its ranks are fixed": {
			job: []job{staticJob}, base: newBase(),
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 2, Ready: 1, Admitted: "True Admitted", Scaled: "False StaticRendezvous"},
		},
		"its ranks are fixed and it wants no more": {
			job: []job{staticJob, upTo(2)}, base: newBase(),
			want: summary{Phase: v1alpha1.JobRunning, Replicas: 2, Ready: 1, Admitted: "True Admitted", Scaled: "True AtMaximum"},
		},
		"it is being preempted": {
			base: newBase(evicted(kueue.EvictedByPreemption)),
			want: summary{Phase: v1alpha1.JobPreempted, Ready: 1, Preemptions: 1, Admitted: "False Preempted", Scaled: "False NotAdmitted"},
		},
		"it is being preempted, as was told": {
			job: []job{found(1)}, base: newBase(evicted(kueue.EvictedByPreemption)),
			want: summary{Phase: v1alpha1.JobPreempted, Ready: 1, Preemptions: 1, Admitted: "False Preempted", Scaled: "False NotAdmitted"},
		},
		"it was preempted, which was not told": {
			base: newBase(queued, evicted(kueue.EvictedByPreemption)),
			want: summary{Phase: v1alpha1.JobPreempted, Preemptions: 1, Admitted: "False WaitingForQuota", Scaled: "False NotAdmitted"},
		},
		"it was preempted and is back in its queue": {
			job: []job{found(1)}, base: newBase(queued, evicted(kueue.EvictedByPreemption)),
			want: summary{Phase: v1alpha1.JobQueued, Preemptions: 1, Admitted: "False WaitingForQuota", Scaled: "False NotAdmitted"},
		},
		"its Job was made anew since": {
			job: []job{found(3)}, base: newBase(queued),
			want: summary{Phase: v1alpha1.JobQueued, Preemptions: 3, Admitted: "False WaitingForQuota", Scaled: "False NotAdmitted"},
		},
		"it found no place": {
			base: newBase(queued, evicted(kueue.EvictedByPodsReadyTimeout)),
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False PodsReadyTimeout", Scaled: "False NotAdmitted"},
		},
		"a check refused it for good": {
			base: newBase(queued, evicted("DeactivatedDueToAdmissionCheck"), inactive),
			want: summary{Phase: v1alpha1.JobQueued, Admitted: "False Deactivated", Scaled: "False NotAdmitted"},
		},
		"it is suspended": {
			job: []job{suspendedJob}, base: newBase(queued, evicted(kueue.EvictedByDeactivation), inactive),
			want: summary{Phase: v1alpha1.JobSuspended, Admitted: "False Suspended", Scaled: "False Suspended"},
		},
		"it has succeeded": {
			base: newBase(endedJob(batchv1.JobComplete, time.Minute)), extras: map[int32]*part{2: newExtra(2, inactive)}, other: v1alpha1.ConditionComplete,
			want: summary{Phase: v1alpha1.JobCompleted, Ready: 1, Admitted: "False Finished", Scaled: "False Finished", Other: "True Succeeded"},
		},
		"it has failed": {
			base: newBase(endedJob(batchv1.JobFailed, time.Minute)), other: v1alpha1.ConditionFailed,
			want: summary{Phase: v1alpha1.JobFailed, Admitted: "False Finished", Scaled: "False Finished", Other: "True JobFailed"},
		},
		"it ran too long": {
			base: newBase(evicted(tooLong), inactive), other: v1alpha1.ConditionFailed,
			want: summary{Phase: v1alpha1.JobFailed, Ready: 1, Admitted: "False Finished", Scaled: "False Finished", Other: "True MaxRunTimeExceeded"},
		},
		"it ran too long, and nothing is left of it": {
			job: []job{over(v1alpha1.ConditionFailed)}, other: v1alpha1.ConditionFailed,
			want: summary{Phase: v1alpha1.JobFailed, Admitted: "False Finished", Scaled: "False Finished", Other: "True "},
		},
		"it has succeeded and its Job is gone": {
			job:  []job{over(v1alpha1.ConditionComplete)},
			want: summary{Phase: v1alpha1.JobCompleted, Admitted: "False Finished", Scaled: "False Finished"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej := newJob(tc.job...)
			if tc.findings.blocked == "" {
				tc.findings.checked = true
			}
			tc.findings.tenant = "a"
			got := statusOf(ej, newState(tc.base, tc.extras), &tc.findings, now)
			if diff := cmp.Diff(tc.want, summarize(got, tc.other)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got.Tenant != "a" || got.Selector != "pool.nvtopo.dev/elasticjob=train" || got.ObservedGeneration != 3 {
				t.Errorf("status %+v", got)
			}
			if ended := got.Phase == v1alpha1.JobCompleted || got.Phase == v1alpha1.JobFailed; ended != (got.CompletionTime != nil) {
				t.Errorf("phase %s, ended at %v", got.Phase, got.CompletionTime)
			}
			// Nothing changes when the same is seen again, but for a preemption that was told.
			ej.Status = *got
			again := statusOf(ej, newState(tc.base, tc.extras), &tc.findings, now.Add(time.Hour))
			if !equality.Semantic.DeepEqual(got, again) && got.Phase != v1alpha1.JobPreempted {
				t.Errorf("the second time (-first +second)\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func TestTimes(t *testing.T) {
	ended := statusOf(newJob(), newState(newBase(endedJob(batchv1.JobComplete, time.Minute)), nil), &findings{checked: true}, now)
	if want := now.Add(-time.Minute); !ended.CompletionTime.Time.Equal(want) {
		t.Errorf("ended at %v, want %v", ended.CompletionTime, want)
	}
	running := statusOf(newJob(), newState(newBase(), nil), &findings{checked: true}, now)
	if want := now.Add(-time.Hour); !running.StartTime.Time.Equal(want) {
		t.Errorf("started at %v, want %v", running.StartTime, want)
	}
}

func TestLongMessages(t *testing.T) {
	var faults []string
	for range 9 {
		faults = append(faults, strings.Repeat("ä", 1000))
	}
	got := statusOf(newJob(), newState(nil, nil), &findings{checked: true, faults: faults, blocked: ReasonTemplateInvalid, why: faultMessage(faults)}, now)
	for _, c := range got.Conditions {
		if len(c.Message) > maxMessage || strings.ToValidUTF8(c.Message, "") != c.Message {
			t.Errorf("%s: %d bytes", c.Type, len(c.Message))
		}
	}
	if got := faultMessage([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a; b; c; d; e; and 2 more" {
		t.Errorf("got %q", got)
	}
}

// TestMessageLists: a list in a message is not empty.
func TestMessageLists(t *testing.T) {
	pool := func(queues ...string) *v1alpha1.ComputePool {
		return newPool(func(p *v1alpha1.ComputePool) {
			for _, q := range queues {
				p.Spec.Queues = append(p.Spec.Queues, v1alpha1.PoolQueue{Name: q})
			}
		})
	}
	for name, tc := range map[string]struct {
		queue string
		pool  *v1alpha1.ComputePool
		want  string
	}{
		"no queue where there is none": {pool: pool()},
		"one of the queues":            {queue: "high", pool: pool("high", "low")},
		"a queue where there is none":  {queue: "high", pool: pool(), want: `spec.queue: "high": ComputePool pool has no queues; leave spec.queue out`},
		"another queue":                {queue: "urgent", pool: pool("high", "low"), want: `spec.queue: "urgent": the queues of ComputePool pool are: high, low`},
		"no queue where there are":     {pool: pool("high"), want: "spec.queue: the job names none; the queues of ComputePool pool are: high"},
	} {
		t.Run(name, func(t *testing.T) {
			ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Queue = tc.queue })
			if got := queueFault(ej, tc.pool); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	for want, checks := range map[string][]kueue.AdmissionCheckState{
		"quota is reserved; not ready: a asks; b":                                          {{Name: "a", State: kueue.CheckPending, Message: "asks"}, {Name: "b", State: kueue.CheckRetry}, {Name: "c", State: kueue.CheckReady}},
		"quota is reserved, and all admission checks are ready: Kueue starts the job next": {{Name: "c", State: kueue.CheckReady}},
	} {
		w := &kueue.Workload{}
		w.Status.AdmissionChecks = checks
		if got := pendingChecks(w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
