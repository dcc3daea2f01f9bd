// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestEvents(t *testing.T) {
	in := func(phase v1alpha1.JobPhase, replicas, preemptions int32) v1alpha1.ElasticJobStatus {
		return v1alpha1.ElasticJobStatus{Phase: phase, Replicas: replicas, Preemptions: preemptions}
	}
	tests := map[string]struct {
		before, after v1alpha1.ElasticJobStatus
		want          []string
	}{
		"queued":                        {before: in("", 0, 0), after: in(v1alpha1.JobQueued, 0, 0)},
		"started":                       {before: in(v1alpha1.JobQueued, 0, 0), after: in(v1alpha1.JobRunning, 2, 0), want: []string{EventStarted}},
		"grown":                         {before: in(v1alpha1.JobRunning, 2, 0), after: in(v1alpha1.JobRunning, 4, 0), want: []string{EventGrown}},
		"shrunk":                        {before: in(v1alpha1.JobRunning, 4, 0), after: in(v1alpha1.JobRunning, 3, 0), want: []string{EventShrunk}},
		"runs on":                       {before: in(v1alpha1.JobRunning, 4, 0), after: in(v1alpha1.JobRunning, 4, 0)},
		"preempted":                     {before: in(v1alpha1.JobRunning, 4, 0), after: in(v1alpha1.JobPreempted, 0, 1), want: []string{EventPreempted}},
		"preempted and back meanwhile":  {before: in(v1alpha1.JobQueued, 0, 0), after: in(v1alpha1.JobRunning, 2, 1), want: []string{EventPreempted, EventStarted}},
		"completed":                     {before: in(v1alpha1.JobRunning, 4, 0), after: in(v1alpha1.JobCompleted, 0, 0), want: []string{EventCompleted}},
		"failed":                        {before: in(v1alpha1.JobQueued, 0, 0), after: in(v1alpha1.JobFailed, 0, 0), want: []string{EventFailed}},
		"failed, which is old":          {before: in(v1alpha1.JobFailed, 0, 0), after: in(v1alpha1.JobFailed, 0, 0)},
		"suspended, which people asked": {before: in(v1alpha1.JobRunning, 4, 0), after: in(v1alpha1.JobSuspended, 0, 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range happened(&tc.before, &tc.after) {
				got = append(got, e.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ej := newJob()
	m.show(ej, &v1alpha1.ElasticJobStatus{Replicas: 4})
	if got := testutil.ToFloat64(m.replicas.WithLabelValues("team-a", "train")); got != 4 {
		t.Errorf("elasticjob_replicas is %v, want 4", got)
	}
	m.forget(types.NamespacedName{Namespace: "team-a", Name: "train"})
	if n := testutil.CollectAndCount(m.replicas); n != 0 {
		t.Errorf("%d jobs are shown after the only one is gone", n)
	}
	running, failed := &v1alpha1.ElasticJobStatus{Phase: v1alpha1.JobRunning}, &v1alpha1.ElasticJobStatus{Phase: v1alpha1.JobFailed}
	m.count(running, running)
	m.count(running, failed)
	m.count(failed, failed)
	m.count(running, &v1alpha1.ElasticJobStatus{Phase: v1alpha1.JobCompleted})
	for _, result := range []string{resultCompleted, resultFailed} {
		if got := testutil.ToFloat64(m.ended.WithLabelValues(result)); got != 1 {
			t.Errorf("elasticjob_completed_total{result=%q} is %v, want 1", result, got)
		}
	}
}
