// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// findings is the result of one reconciliation of an ElasticJob, apart from the state of its Jobs.
type findings struct {
	tenant string // tenant of its namespace; "" if it has none
	// checked reports that the template could be checked against the pool.
	checked bool
	faults  []string // faults of the template, each naming a field
	// blocked is the reason why the job's objects cannot be rendered, with its message; "" if they can.
	blocked, why string
	// never is the reason why the base can never have quota under the pool's spec; "" if it can.
	never string
	// taken names an object that has the name of one of the job's, but another owner.
	taken string
	// refused is the API server's refusal of an object; "" if it refused none.
	refused string
}

// block records a reason, unless there is one already.
func (f *findings) block(reason, why string) {
	if f.blocked == "" {
		f.blocked, f.why = reason, why
	}
}

// ended reports whether the job has succeeded or failed, which stays so whatever happens to its Jobs.
func ended(ej *v1alpha1.ElasticJob) bool {
	return meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionComplete) ||
		meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionFailed)
}

// statusOf returns the new status of a job; ej has the last one.
func statusOf(ej *v1alpha1.ElasticJob, s *state, f *findings, now time.Time) *v1alpha1.ElasticJobStatus {
	out := ej.Status.DeepCopy()
	out.ObservedGeneration = ej.Generation
	out.Selector = labels.FormatLabels(selector(ej))
	if f.tenant != "" {
		out.Tenant = f.tenant
	}
	out.Phase = phaseOf(ej, s)
	out.Preemptions = max(out.Preemptions, s.base.preemptions())
	out.ExtraReplicas, out.ReadyReplicas = 0, s.base.ready()
	for _, extra := range s.extras {
		out.ReadyReplicas += extra.ready()
		if extra.admitted() {
			out.ExtraReplicas++
		}
	}
	out.Replicas = out.ExtraReplicas
	if s.base.admitted() {
		out.Replicas += ej.Spec.Scaling.MinReplicas
		if out.StartTime == nil {
			out.StartTime = s.base.condition(kueue.WorkloadAdmitted).LastTransitionTime.DeepCopy()
		}
	}
	c := &conditions{ej: ej, s: s, f: f, out: out, now: metav1.NewTime(now)}
	c.write()
	if out.CompletionTime == nil && (out.Phase == v1alpha1.JobCompleted || out.Phase == v1alpha1.JobFailed) {
		out.CompletionTime = endOf(s, c.now)
	}
	return out
}

// endOf returns when the job ended, according to the Job or Kueue.
func endOf(s *state, now metav1.Time) *metav1.Time {
	at := &now
	switch end := s.base; {
	case end.succeeded() != nil:
		at = &end.succeeded().LastTransitionTime
	case end.failed() != nil:
		at = &end.failed().LastTransitionTime
	case end.ranTooLong():
		at = &end.condition(kueue.WorkloadEvicted).LastTransitionTime
	}
	return at.DeepCopy()
}

// phaseOf returns the phase of a job. A preemption is shown once, however quickly it passed: the last
// status has the count to compare with.
func phaseOf(ej *v1alpha1.ElasticJob, s *state) v1alpha1.JobPhase {
	base := s.base
	switch {
	case meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionComplete):
		return v1alpha1.JobCompleted
	case meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionFailed):
		return v1alpha1.JobFailed
	case base.succeeded() != nil:
		return v1alpha1.JobCompleted
	case base.failed() != nil, base.ranTooLong():
		return v1alpha1.JobFailed
	case ej.Spec.Suspend:
		return v1alpha1.JobSuspended
	case base == nil:
		return v1alpha1.JobPending
	case base.preemptions() > ej.Status.Preemptions:
		return v1alpha1.JobPreempted
	case base.admitted():
		return v1alpha1.JobRunning
	case base.evictedBy() == kueue.EvictedByPreemption && base.leaving():
		return v1alpha1.JobPreempted
	}
	return v1alpha1.JobQueued
}
