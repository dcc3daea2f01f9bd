// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// endsLate is how much later than promised a pod may be gone: kubelet and the API server need
// a moment after the grace period.
const endsLate = 30 * time.Second

// afterThoseThatEnd waits for pods that are on their way out, if they leave a place. Kueue has the
// quota of pods as soon as they begin to end, so this is what follows each of its preemptions.
func (s *Snapshot) afterThoseThatEnd(a *ask, why string) (Decision, bool) {
	var until time.Time
	later, gone := s.without(func(p *v1.Pod) bool {
		end, ends := s.endOf(p, a)
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

// endOf is by when a pod that is on its way out will be gone. One that should be gone already does
// not end: nobody knows when it will. A pod whose job has no quota any more is about to be deleted:
// what asks has that quota since then or later, and waits for the pod from then on.
func (s *Snapshot) endOf(p *v1.Pod, a *ask) (end time.Time, ends bool) {
	switch {
	case p.DeletionTimestamp != nil:
		end = p.DeletionTimestamp.Add(endsLate)
	case s.quotas.lost(p):
		end = s.sinceQuota(a.workload).Add(graceOf(p)).Add(endsLate)
	default:
		return end, false
	}
	return end, !s.now.After(end)
}

// sinceQuota is since when a Workload has quota; now, where it has none yet.
func (s *Snapshot) sinceQuota(w *kueue.Workload) time.Time {
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return s.now
}

func graceOf(p *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := p.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(seconds) * time.Second
}

// quotas says which jobs keep the quota that they have.
type quotas struct {
	byOwner map[types.UID]bool // of the job, or of the pods of a pod group
	byName  map[string]bool    // namespace/name of the Workload
}

func readQuotas(workloads []kueue.Workload) quotas {
	q := quotas{byOwner: map[types.UID]bool{}, byName: make(map[string]bool, len(workloads))}
	for i := range workloads {
		w := &workloads[i]
		kept := keepsQuota(w)
		q.byName[w.Namespace+"/"+w.Name] = kept
		for _, owner := range w.OwnerReferences {
			q.byOwner[owner.UID] = q.byOwner[owner.UID] || kept
		}
	}
	return q
}

// keepsQuota reports whether a Workload has quota that Kueue does not count as free already: that of
// one that is being evicted, is stopped or has ended it may give to another at once.
func keepsQuota(w *kueue.Workload) bool {
	stopped := w.Spec.Active != nil && !*w.Spec.Active
	return isTrue(w, kueue.WorkloadQuotaReserved) && !isTrue(w, kueue.WorkloadEvicted) && !isTrue(w, kueue.WorkloadFinished) &&
		!stopped && w.DeletionTimestamp == nil
}

// lost reports whether Kueue let a pod start, and its quota may be another's by now. Kueue stops the
// pod's job next: the pod has no mark of that yet.
func (q *quotas) lost(p *v1.Pod) bool {
	owner := p.UID
	if c := metav1.GetControllerOf(p); c != nil {
		owner = c.UID
	}
	kept, known := q.byOwner[owner]
	if name := p.Annotations[kueue.AnnotationWorkload]; name != "" {
		return !kept && !q.byName[p.Namespace+"/"+name]
	}
	return known && !kept
}
