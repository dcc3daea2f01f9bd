// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// told formats a step.
func told(s *step) string {
	switch {
	case s.serve != nil:
		return "serve " + s.serve.Name
	case s.create != nil:
		return "make " + s.create.Name
	case s.remove != nil:
		return "remove " + s.remove.Name
	case s.activate != nil:
		return "activate " + s.activate.Name
	case s.deactivate != nil:
		return "deactivate " + s.deactivate.Name
	}
	var labels []string
	for key, value := range s.labels {
		labels = append(labels, key[strings.Index(key, "/")+1:]+"="+value)
	}
	slices.Sort(labels)
	return fmt.Sprint("label ", s.relabel.Name, " ", strings.Join(labels, " "))
}

func suspendedJob(ej *v1alpha1.ElasticJob) { ej.Spec.Suspend = true }
func protectedJob(ej *v1alpha1.ElasticJob) { ej.Spec.Preemptible = new(false) }
func staticJob(ej *v1alpha1.ElasticJob)    { ej.Spec.Scaling.Rendezvous = v1alpha1.RendezvousStatic }
func upTo(n int32) func(*v1alpha1.ElasticJob) {
	return func(ej *v1alpha1.ElasticJob) { ej.Spec.Scaling.MaxReplicas = n }
}

func over(kind string) func(*v1alpha1.ElasticJob) {
	return func(ej *v1alpha1.ElasticJob) {
		ej.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
	}
}

func TestPlan(t *testing.T) {
	type job = func(*v1alpha1.ElasticJob)
	tests := map[string]struct {
		job       []job
		base      *part
		extras    map[int32]*part
		unserved  bool
		blocked   bool // nothing can be made of the job
		want      []string
		wantAgain time.Duration
	}{
		"a new job":                                {unserved: true, want: []string{"serve train", "make train-base"}},
		"a new job that is suspended":              {job: []job{suspendedJob}, unserved: true},
		"a new job that is blocked":                {unserved: true, blocked: true},
		"a job that waits":                         {base: newBase(queued)},
		"a job that Kueue has not seen, and waits": {base: newBase(unseen)},
		"a job that was admitted":                  {base: newBase(), want: []string{"make train-x2", "make train-x3"}},
		"a job that lost its Service":              {base: newBase(queued), unserved: true, want: []string{"serve train"}},
		"a job that grew":                          {base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, queued)}},
		"a job whose ranks are fixed":              {job: []job{staticJob}, base: newBase()},
		"growth of a blocked job":                  {base: newBase(), extras: map[int32]*part{2: newExtra(2)}, blocked: true},
		"a smaller maximum takes the highest": {
			job: []job{upTo(3)}, base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3), 4: newExtra(4, queued)},
			want: []string{"remove train-x4", "deactivate w-train-x3"},
		},
		"an extra on its way out": {
			job: []job{upTo(2)}, base: newBase(), extras: map[int32]*part{2: newExtra(2, inactive)},
		},
		"an extra whose pods are gone, and whose quota Kueue has not taken yet": {
			job: []job{upTo(2)}, base: newBase(), extras: map[int32]*part{2: newExtra(2, queued, inactive, func(p *part) {
				set(p, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "")
			})},
		},
		"an extra that is out": {
			job: []job{upTo(2)}, base: newBase(), extras: map[int32]*part{2: newExtra(2, queued, inactive)},
			want: []string{"remove train-x2"},
		},
		"an extra whose pod is terminating": {
			job: []job{upTo(2)}, base: newBase(), extras: map[int32]*part{2: newExtra(2, queued, inactive, func(p *part) { p.job.Status.Terminating = new(int32(1)) })},
		},
		"an extra that is wanted again goes first": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, queued, inactive)},
			want: []string{"remove train-x3"},
		},
		"an extra that was just evicted": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, endedJob(batchv1.JobFailed, 20*time.Second))}, wantAgain: 40 * time.Second,
		},
		"an extra that was evicted a minute ago": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, endedJob(batchv1.JobFailed, time.Minute))},
			want: []string{"remove train-x3"},
		},
		"an extra that has succeeded stays": {
			base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, endedJob(batchv1.JobComplete, time.Hour))},
		},
		"an evicted base takes its extras along": {
			base: newBase(evicted(kueue.EvictedByPreemption)), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, queued)},
			want: []string{"remove train-x3", "deactivate w-train-x2"},
		},
		"a base that succeeded": {
			base: newBase(endedJob(batchv1.JobComplete, 0)), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3, endedJob(batchv1.JobComplete, 0))},
			want: []string{"remove train-x3", "deactivate w-train-x2"},
		},
		"a job that succeeded stays as it is": {job: []job{over(v1alpha1.ConditionComplete)}, base: newBase(endedJob(batchv1.JobComplete, 0))},
		"a job that ran too long": {
			base: newBase(evicted("DeactivatedDueToMaximumExecutionTimeExceeded"), inactive), extras: map[int32]*part{2: newExtra(2)},
			want: []string{"deactivate w-train-x2"},
		},
		"what is left of it": {
			job:  []job{over(v1alpha1.ConditionFailed)},
			base: newBase(queued, evicted("DeactivatedDueToMaximumExecutionTimeExceeded"), inactive), want: []string{"remove train-base"},
		},
		"a failed job is not made again": {job: []job{over(v1alpha1.ConditionFailed)}},
		"a job that a check refused for good": {
			base: newBase(queued, evicted("DeactivatedDueToAdmissionCheck"), inactive),
		},
		"a job that is being suspended": {
			job: []job{suspendedJob}, base: newBase(), extras: map[int32]*part{2: newExtra(2)},
			want: []string{"deactivate w-train-base", "deactivate w-train-x2"},
		},
		"a suspended job":       {job: []job{suspendedJob}, base: newBase(queued, evicted(kueue.EvictedByDeactivation), deactivated)},
		"a job that is resumed": {base: newBase(queued, evicted(kueue.EvictedByDeactivation), deactivated), want: []string{"activate w-train-base"}},
		"a suspended job that somebody had stopped before, or an earlier release": {
			job: []job{suspendedJob}, base: newBase(queued, evicted(kueue.EvictedByDeactivation), inactive), want: []string{"deactivate w-train-base"},
		},
		"a resumed job that a person had activated before": {
			base: newBase(func(p *part) { p.workload.Annotations = map[string]string{names.AnnotationDeactivated: "true"} }),
			want: []string{"activate w-train-base", "make train-x2", "make train-x3"},
		},
		"a job that a person has stopped":                      {base: newBase(queued, evicted(kueue.EvictedByDeactivation), inactive)},
		"a job that Kueue stops, before Kueue has written why": {base: newBase(inactive)},
		"a resumed job that a check refused for good":          {base: newBase(queued, evicted("DeactivatedDueToAdmissionCheck"), deactivated)},
		"a protected job is let in by the pool":                {job: []job{protectedJob}, base: newBase(gatedJob), want: []string{"label train-base priority-class=nvtopo-protected"}},
		"a protected job that is being suspended": {
			job: []job{suspendedJob, protectedJob}, base: newBase(func(p *part) { p.job.Labels[kueue.LabelPriorityClass] = "nvtopo-protected" }),
			want: []string{"deactivate w-train-base"},
		},
		"a protected job that was suspended goes, so that nothing is pinned": {
			job: []job{suspendedJob, protectedJob}, base: newBase(queued, inactive, func(p *part) { p.job.Labels[kueue.LabelPriorityClass] = "nvtopo-protected" }),
			want: []string{"remove train-base"},
		},
		"another priority while the job runs": {
			job: []job{func(ej *v1alpha1.ElasticJob) { ej.Spec.Priority = 9 }}, base: newBase(), extras: map[int32]*part{2: newExtra(2), 3: newExtra(3)},
			want: []string{"label train-base priority-class=nvtopo-p9", "label train-x3 priority-class=nvtopo-extra-p9", "label train-x2 priority-class=nvtopo-extra-p9"},
		},
		"a time while the job runs": {job: []job{func(ej *v1alpha1.ElasticJob) { ej.Spec.MaxRunSeconds = new(int32(60)) }}, base: newBase(), want: []string{"make train-x2", "make train-x3"}},
		"a time while it waits":     {job: []job{func(ej *v1alpha1.ElasticJob) { ej.Spec.MaxRunSeconds = new(int32(60)) }}, base: newBase(queued), want: []string{"label train-base max-exec-time-seconds=60"}},
		"no time any more": {
			base: newBase(queued, func(p *part) { p.job.Labels[kueue.LabelMaxExecutionSeconds] = "60" }), want: []string{"label train-base max-exec-time-seconds="},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej := newJob(tc.job...)
			rendered := Render(ej, newPool())
			if tc.blocked {
				rendered = nil
			}
			s := newState(tc.base, tc.extras)
			s.served = !tc.unserved
			steps, again := plan(ej, rendered, s, now)
			var got []string
			for i := range steps {
				got = append(got, told(&steps[i]))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if again != tc.wantAgain {
				t.Errorf("again after %v, want %v", again, tc.wantAgain)
			}
		})
	}
}
