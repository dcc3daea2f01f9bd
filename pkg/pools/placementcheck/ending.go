// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

// soon is the longest remaining time of an ending pod that is waited for. Places that become free later
// are for others meanwhile. It is the default of the scheduler's terminationWait.
const soon = 5 * time.Minute

// afterThoseThatEnd waits for ending pods, if they leave a place. Kueue counts the quota of pods as free
// as soon as they begin to end, so this follows each of its preemptions.
func (s *Snapshot) afterThoseThatEnd(a *ask, why string) (Decision, bool) {
	var until time.Time
	later, gone := s.without(func(p *v1.Pod) bool {
		end, ends := s.endOf(p)
		if ends && end.After(until) {
			until = end
		}
		return ends
	})
	if gone == 0 {
		return Decision{}, false
	}
	if _, err := later.fit(a, nil); err != nil {
		return Decision{}, false
	}
	return Decision{Verdict: Wait, Message: fmt.Sprintf("%s; waits for pods that are ending: %d", why, gone), Until: until}, true
}

// endOf returns the time by which an ending pod will be gone; ends is false if that takes longer than
// soon. An overdue pod does not end: when it will is unknown. A pod whose job has lost its quota is
// about to be deleted.
func (s *Snapshot) endOf(p *v1.Pod) (end time.Time, ends bool) {
	if p.DeletionTimestamp != nil {
		end = p.DeletionTimestamp.Add(eviction.Overdue)
	} else if since, lost := s.quotas.lost(p); lost {
		end = since.Add(eviction.GraceOf(p)).Add(eviction.Overdue)
	}
	return end, !s.now.After(end) && end.Sub(s.now) <= soon+eviction.Overdue
}

// quotas maps the owners of Workloads, which are jobs, or the pods of pod groups, to the time since
// which Kueue counts their quota as free: zero if they have quota. Kueue may give the quota of a
// Workload that is being evicted, is stopped or has ended to another at once.
type quotas map[types.UID]time.Time

func readQuotas(workloads []kueue.Workload, now time.Time) quotas {
	q := quotas{}
	for i := range workloads {
		w := &workloads[i]
		since := lostQuota(w, now)
		for _, owner := range w.OwnerReferences {
			if other, known := q[owner.UID]; !known || since.IsZero() || !other.IsZero() && other.Before(since) {
				q[owner.UID] = since
			}
		}
	}
	return q
}

// lostQuota returns the time since which a Workload has no quota; zero if it has, now if it is about to
// lose it.
func lostQuota(w *kueue.Workload, now time.Time) (since time.Time) {
	lost := map[string]metav1.ConditionStatus{
		kueue.WorkloadQuotaReserved: metav1.ConditionFalse, kueue.WorkloadEvicted: metav1.ConditionTrue, kueue.WorkloadFinished: metav1.ConditionTrue,
	}
	for i := range w.Status.Conditions {
		if c := &w.Status.Conditions[i]; c.Status == lost[c.Type] && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	if stopped := w.Spec.Active != nil && !*w.Spec.Active; since.IsZero() && (stopped || w.DeletionTimestamp != nil) {
		return now
	}
	return since
}

// lost reports whether the quota of a pod's job may belong to another job by now, and since when. Kueue
// stops the job next: the pod shows no sign of that yet.
func (q quotas) lost(p *v1.Pod) (since time.Time, lost bool) {
	since, known := q[p.UID]
	if c := metav1.GetControllerOf(p); !known && c != nil {
		since, known = q[c.UID]
	}
	return since, known && !since.IsZero()
}
