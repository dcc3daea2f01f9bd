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

// part is a Job of an ElasticJob with its Workload.
type part struct {
	job      *batchv1.Job
	workload *kueue.Workload // nil until Kueue has made it
}

// state is the existing objects of an ElasticJob.
type state struct {
	base   *part          // nil if it does not exist
	extras map[int32]part // by replica number
	served bool           // the Service exists
}

// order returns the numbers of the extras, ascending.
func (s *state) order() []int32 { return slices.Sorted(maps.Keys(s.extras)) }

// condition returns the Workload's condition of that type; nil if it has none.
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

// admitted reports whether the part may run: it has quota, and is not being evicted or deactivated.
func (p *part) admitted() bool {
	return p.is(kueue.WorkloadAdmitted) && !p.is(kueue.WorkloadEvicted) && p.active() && !p.finished()
}

// evictedBy returns the reason for which the part lost its quota, if it has not had it since; else "".
func (p *part) evictedBy() string {
	if !p.is(kueue.WorkloadEvicted) {
		return ""
	}
	return p.condition(kueue.WorkloadEvicted).Reason
}

// leaving reports whether the part is losing its quota: some of its pods still exist, or Kueue has not
// recorded yet that they are gone.
func (p *part) leaving() bool {
	return p.evictedBy() != "" && (p.is(kueue.WorkloadQuotaReserved) || !p.idle())
}

// active reports whether the part may have quota, as far as its own Workload is concerned.
func (p *part) active() bool {
	return p.workload == nil || p.workload.Spec.Active == nil || *p.workload.Spec.Active
}

// markedByUs reports whether this controller has deactivated the part and not activated it since. It may
// be active nevertheless, if a person did that.
func (p *part) markedByUs() bool {
	return p.workload != nil && p.workload.Annotations[names.AnnotationDeactivated] != ""
}

// deactivatedByKueue reports whether Kueue itself has deactivated the part: it ran for too long, or an
// admission check refused it for good.
func (p *part) deactivatedByKueue() bool {
	return p != nil && !p.active() && strings.HasPrefix(p.evictedBy(), deactivatedDueTo)
}

// deactivatedDueTo is the prefix before the cause in the reason of an eviction by Kueue itself.
// https://kueue.sigs.k8s.io/docs/concepts/workload/
const deactivatedDueTo = kueue.EvictedByDeactivation + "DueTo"

// ranTooLong reports whether Kueue stopped the part because of maxRunSeconds.
func (p *part) ranTooLong() bool {
	return p.deactivatedByKueue() && p.evictedBy() == deactivatedDueTo+kueue.EvictedByMaxExecution
}

// idle reports whether the part has no pod that holds devices. The Job's controller counts a pod that is
// being deleted until its containers have ended.
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

// succeeded and failed return the Job's final condition; nil until it has one.
func (p *part) succeeded() *batchv1.JobCondition { return p.jobCondition(batchv1.JobComplete) }
func (p *part) failed() *batchv1.JobCondition    { return p.jobCondition(batchv1.JobFailed) }

func (p *part) finished() bool { return p.succeeded() != nil || p.failed() != nil }

// mayRetry returns the time from which an extra may be created again: a while after it failed, so that
// it does not take the place from the pod it was evicted for.
func (p *part) mayRetry() (at time.Time, failed bool) {
	c := p.failed()
	if c == nil {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Add(extraRetry), true
}

// preemptions counts how often the part was preempted.
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

// ready counts the part's ready pods.
func (p *part) ready() int32 {
	if p == nil || p.job.Status.Ready == nil {
		return 0
	}
	return *p.job.Status.Ready
}
