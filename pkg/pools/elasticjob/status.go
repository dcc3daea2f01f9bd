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

// findings are what was found out about an ElasticJob beside the state of its Jobs.
type findings struct {
	tenant string // whose namespace it is in; "" if it is nobody's
	// checked says that the template could be checked against the pool.
	checked bool
	faults  []string // of the template, each naming a field
	// blocked is the reason for which nothing can be made of the job, with its message; "" if
	// something can.
	blocked, why string
	// never is why the base can never have quota by the pool's spec; "" if it can.
	never string
	// taken names what has the name of something of the job's and is not the job's.
	taken string
	// refused is what the API server refuses; "" if it takes all.
	refused string
}

// block keeps the first reason.
func (f *findings) block(reason, why string) {
	if f.blocked == "" {
		f.blocked, f.why = reason, why
	}
}

// ended says that the job has succeeded or failed, which it stays whatever becomes of its Jobs.
func ended(ej *v1alpha1.ElasticJob) bool {
	return meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionComplete) ||
		meta.IsStatusConditionTrue(ej.Status.Conditions, v1alpha1.ConditionFailed)
}

// statusOf is the status of a job whose last one is in ej.
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

// endOf is when the job ended, as the Job or Kueue says.
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

// phaseOf derives the state in one word. A preemption is shown once, however quickly it passed:
// the count in the last status says whether it was.
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
