// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// maxHolders bounds the Workloads that are named for the quota that they hold.
const maxHolders = 5

// explainQuota explains a job that Kueue does not let in. wl is nil if Kueue has none yet.
func (s *scene) explainQuota(e *Explanation, wl *kueue.Workload) {
	defer func() { e.Next = nextSteps[e.Cause] }()
	e.Cause = NoQuota
	if wl == nil {
		e.Reason = "Kueue has made no Workload of it: its queue, or Kueue itself, is not there"
		return
	}
	queue := s.queueOf(wl)
	e.Evidence = append(e.Evidence, fmt.Sprintf("Workload %s/%s in LocalQueue %s, ClusterQueue %s", wl.Namespace, wl.Name, wl.Spec.QueueName, cmp.Or(queue, "unknown")))
	checks := checksOf(wl)
	reserved := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case wl.Spec.Active != nil && !*wl.Spec.Active:
		e.Reason = "the Workload is deactivated: spec.active is false"
	case meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved):
		e.Cause, e.Reason = NoPlaceYet, "the job has quota, and waits for an admission check"
	case wl.Status.RequeueState != nil && wl.Status.RequeueState.RequeueAt != nil && wl.Status.RequeueState.RequeueAt.After(s.Now):
		e.Cause = NoPlaceYet
		e.Reason = "the job gave its quota back, and is queued again at " + wl.Status.RequeueState.RequeueAt.UTC().Format(time.RFC3339)
	case reserved != nil && reserved.Message != "":
		e.Reason = "Kueue: " + reserved.Message
	default:
		e.Reason = "Kueue has not looked at the Workload yet"
	}
	e.Evidence = append(e.Evidence, checks...)
	if e.Cause == NoQuota {
		e.Evidence = append(e.Evidence, s.holders(wl, queue)...)
	}
}

// checksOf are what admission checks that are not content say.
func checksOf(wl *kueue.Workload) (out []string) {
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; c.State != kueue.CheckReady && c.Message != "" {
			out = append(out, fmt.Sprintf("admission check %s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	return out
}

// queueOf is the ClusterQueue of a Workload, empty if it is not known.
func (s *scene) queueOf(wl *kueue.Workload) string {
	for i := range s.LocalQueues {
		if q := &s.LocalQueues[i]; q.Namespace == wl.Namespace && q.Name == wl.Spec.QueueName {
			return q.Spec.ClusterQueue
		}
	}
	return ""
}

// holder is a Workload that has quota.
type holder struct {
	name string
	n    int64 // of the resources asked
}

// holders says how much quota the queue has of what the Workload's pods ask, and who has how
// much of it: those of the queue and of its cohort, most first.
func (s *scene) holders(wl *kueue.Workload, queue string) (out []string) {
	same := s.lending(queue)
	for i := range s.ClusterQueues {
		if q := &s.ClusterQueues[i]; q.Name == queue {
			out = append(out, quotas(q, s.Profile.Options.Resources)...)
		}
	}
	var all []holder
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.UID == wl.UID || w.Status.Admission == nil || !same[w.Status.Admission.ClusterQueue] || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		if n := s.held(w); n > 0 {
			all = append(all, holder{fmt.Sprintf("%s/%s of %s", w.Namespace, w.Name, w.Status.Admission.ClusterQueue), n})
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	for _, h := range all[:min(len(all), maxHolders)] {
		out = append(out, fmt.Sprintf("Workload %s holds %d", h.name, h.n))
	}
	if len(all) > maxHolders {
		out = append(out, fmt.Sprintf("and %s more", counted(len(all)-maxHolders, "Workload")))
	}
	return out
}

// lending are the ClusterQueues that lend each other quota: this one and those of its cohort.
func (s *scene) lending(queue string) map[string]bool {
	var cohort string
	for i := range s.ClusterQueues {
		if q := &s.ClusterQueues[i]; q.Name == queue {
			cohort = q.Spec.CohortName
		}
	}
	out := map[string]bool{queue: true}
	for i := range s.ClusterQueues {
		if q := &s.ClusterQueues[i]; cohort != "" && q.Spec.CohortName == cohort {
			out[q.Name] = true
		}
	}
	return out
}

// held is how many devices a Workload has quota of.
func (s *scene) held(w *kueue.Workload) (n int64) {
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, resource := range s.Profile.Options.Resources {
			q := a.ResourceUsage[v1.ResourceName(resource)]
			n += q.Value()
		}
	}
	return n
}

// quotas are what a ClusterQueue has of some resources.
func quotas(q *kueue.ClusterQueue, resources []string) (out []string) {
	for _, group := range q.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for _, r := range f.Resources {
				if !slices.Contains(resources, string(r.Name)) {
					continue
				}
				text := fmt.Sprintf("ClusterQueue %s has %s %s of flavor %s", q.Name, r.NominalQuota.String(), r.Name, f.Name)
				if r.BorrowingLimit != nil {
					text += ", and may borrow " + r.BorrowingLimit.String()
				}
				out = append(out, text)
			}
		}
	}
	return out
}
