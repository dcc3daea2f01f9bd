// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// part is a Job of an ElasticJob with what Kueue made of it.
type part struct {
	job      *batchv1.Job
	workload *kueue.Workload // nil until Kueue has made it
}

// state is what exists of an ElasticJob.
type state struct {
	base   *part          // nil if there is none
	extras map[int32]part // by the number of the replica
	served bool           // the Service is there
}

// order returns the numbers of the extras, ascending.
func (s *state) order() []int32 { return slices.Sorted(maps.Keys(s.extras)) }

// condition is a condition of the Workload; nil if it has none of that type.
func (p *part) condition(kind string) *metav1.Condition {
	if p == nil || p.workload == nil {
		return nil
	}
	return meta.FindStatusCondition(p.workload.Status.Conditions, kind)
}

func (p *part) is(kind string) bool {
	c := p.condition(kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

// admitted says that the part may run: it has quota, and nobody is taking it away.
func (p *part) admitted() bool {
	return p.is(kueue.WorkloadAdmitted) && !p.is(kueue.WorkloadEvicted) && p.active() && !p.finished()
}

// evictedBy is the reason for which the part lost its quota and has not had it since; "" if
// nobody took it.
func (p *part) evictedBy() string {
	if !p.is(kueue.WorkloadEvicted) {
		return ""
	}
	return p.condition(kueue.WorkloadEvicted).Reason
}

// leaving says that the part is losing its quota: its pods are not all gone, or Kueue has not
// written yet that they are.
func (p *part) leaving() bool {
	return p.evictedBy() != "" && (p.is(kueue.WorkloadQuotaReserved) || !p.idle())
}

// active says that the part may have quota, as far as its own Workload is concerned.
func (p *part) active() bool {
	return p.workload == nil || p.workload.Spec.Active == nil || *p.workload.Spec.Active
}

// markedByUs says that this controller has deactivated the part and not activated it since. It may be
// active all the same, if a person did that.
func (p *part) markedByUs() bool {
	return p.workload != nil && p.workload.Annotations[names.AnnotationDeactivated] != ""
}

// deactivatedByKueue says that Kueue itself has deactivated the part: it ran for too long, or an
// admission check refused it for good.
func (p *part) deactivatedByKueue() bool {
	return p != nil && !p.active() && strings.HasPrefix(p.evictedBy(), deactivatedDueTo)
}

// deactivatedDueTo comes before the cause in the reason of an eviction by Kueue itself.
// https://kueue.sigs.k8s.io/docs/concepts/workload/
const deactivatedDueTo = kueue.EvictedByDeactivation + "DueTo"

// ranTooLong says that Kueue stopped the part because of maxRunSeconds.
func (p *part) ranTooLong() bool {
	return p.deactivatedByKueue() && p.evictedBy() == deactivatedDueTo+kueue.EvictedByMaxExecution
}

// idle says that the part has no pod that holds devices. The Job's controller counts a pod that
// is being deleted until its containers have ended.
func (p *part) idle() bool {
	s := &p.job.Status
	return s.Active == 0 && (s.Terminating == nil || *s.Terminating == 0)
}

func (p *part) suspended() bool { return p.job.Spec.Suspend != nil && *p.job.Spec.Suspend }

func (p *part) jobCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == v1.ConditionTrue })
	if i < 0 {
		return nil
	}
	return &p.job.Status.Conditions[i]
}

// succeeded and failed are the Job's last words; nil until it has said them.
func (p *part) succeeded() *batchv1.JobCondition { return p.jobCondition(batchv1.JobComplete) }
func (p *part) failed() *batchv1.JobCondition    { return p.jobCondition(batchv1.JobFailed) }

func (p *part) finished() bool { return p.succeeded() != nil || p.failed() != nil }

// mayRetry says from when on an extra may be made anew: a while after it failed, so that it does
// not take the place again from whoever it was evicted for.
func (p *part) mayRetry() (at time.Time, failed bool) {
	c := p.failed()
	if c == nil {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Add(extraRetry), true
}

// preemptions counts how often others had the part evicted.
func (p *part) preemptions() (n int32) {
	if p == nil || p.workload == nil || p.workload.Status.SchedulingStats == nil {
		return 0
	}
	for _, e := range p.workload.Status.SchedulingStats.Evictions {
		if e.Reason == kueue.EvictedByPreemption {
			n += e.Count
		}
	}
	return n
}

// ready counts the pods that run and are ready.
func (p *part) ready() int32 {
	if p == nil || p.job.Status.Ready == nil {
		return 0
	}
	return *p.job.Status.Ready
}
