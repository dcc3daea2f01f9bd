// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// stage is how far a Workload has come, as its status has it. Nothing else is remembered.
//
//	asking ──Ready──► promised ──pods are bound──► (done)
//	   │ Retry
//	   ▼        Kueue evicts           Kueue notes the time
//	retried ──────────────► evicted ──Retry, time──► timed ──Pending──► held ──a place, or the time──► queued ──quota──► asking
//
// The way round is there because Kueue keeps the quota of a Retry with a time until that time, and
// forgets the time when it evicts: so it evicts first, and is given the time afterwards.
type stage uint8

const (
	elsewhere stage = iota // not ours, ended, or Kueue's turn
	asking                 // has quota, and no answer
	promised               // has quota, and was told to start
	evicted                // was told that there is no place, and Kueue has no time yet when to try again
	timed                  // Kueue has the time, and the check still says Retry
	held                   // waits for that time or a place, without quota
	queued                 // its pause has ended: Kueue is about to give it quota
)

// checkOf is what our check says of a Workload; nil if it is not asked.
func checkOf(w *kueue.Workload) *kueue.AdmissionCheckState {
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.Name == names.CheckPlacementObject {
			return c
		}
	}
	return nil
}

func isTrue(w *kueue.Workload, condition string) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

func stageOf(w *kueue.Workload, now time.Time) stage {
	c := checkOf(w)
	switch {
	case w.DeletionTimestamp != nil || isTrue(w, kueue.WorkloadFinished) || w.Spec.Active != nil && !*w.Spec.Active:
		return elsewhere
	case isTrue(w, kueue.WorkloadQuotaReserved) && !isTrue(w, kueue.WorkloadEvicted):
		return withQuota(w, c)
	case c != nil && evictedByCheck(w):
		return afterEviction(w, c, now)
	}
	return elsewhere
}

// afterEviction is the stage of a Workload that Kueue evicted because of a check.
func afterEviction(w *kueue.Workload, c *kueue.AdmissionCheckState, now time.Time) stage {
	until := c.LastTransitionTime.Add(afterRetry(c))
	quota, requeued := isTrue(w, kueue.WorkloadQuotaReserved), isTrue(w, kueue.WorkloadRequeued)
	heldSince := c.LastTransitionTime.After(evictedAt(w)) // since the eviction, which gives a check its own time
	switch {
	case c.State == kueue.CheckRetry && (now.After(until) || !requeueAt(w).Before(until)):
		return timed
	case c.State != kueue.CheckPending || retries(c) == 0 || c.LastTransitionTime.Time.Before(evictedAt(w)):
		// Kueue is next, or another check had it evicted.
	case requeueAt(w).After(now):
		return held
	case heldSince && !quota && (!requeued || !now.After(inQueueSince(w).Add(queuedFor))):
		return queued
	case !heldSince && (quota || !requeued):
		return evicted // and not in its queue again: there Kueue would heed a time only halfway
	}
	return elsewhere
}

// withQuota is the stage of a Workload that holds quota. One that was admitted without our check
// has its pods' places too.
func withQuota(w *kueue.Workload, c *kueue.AdmissionCheckState) stage {
	switch {
	case w.Status.Admission == nil:
	case isTrue(w, kueue.WorkloadAdmitted), c != nil && c.State == kueue.CheckReady:
		return promised
	case c != nil && c.State == kueue.CheckPending:
		return asking
	}
	return elsewhere
}

// evictedAt is when Kueue evicted the Workload last.
func evictedAt(w *kueue.Workload) time.Time { return changedAt(w, kueue.WorkloadEvicted) }

// inQueueSince is when Kueue put the Workload into its queue again, if it did.
func inQueueSince(w *kueue.Workload) time.Time { return changedAt(w, kueue.WorkloadRequeued) }

// changedAt is when a condition came to be as it is; zero if there is none.
func changedAt(w *kueue.Workload, condition string) time.Time {
	if c := meta.FindStatusCondition(w.Status.Conditions, condition); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// evictedByCheck reports whether the last eviction was because of an admission check.
func evictedByCheck(w *kueue.Workload) bool {
	c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	return c != nil && c.Reason == kueue.EvictedByAdmissionCheck && isTrue(w, kueue.WorkloadEvicted)
}

// requeueAt is until when Kueue leaves the Workload out of its queue; zero if it does not.
func requeueAt(w *kueue.Workload) time.Time {
	if s := w.Status.RequeueState; s != nil && s.RequeueAt != nil {
		return s.RequeueAt.Time
	}
	return time.Time{}
}

// afterRetry is for how long a state of Retry asks Kueue to wait.
func afterRetry(c *kueue.AdmissionCheckState) time.Duration {
	if c.RequeueAfterSeconds == nil {
		return 0
	}
	return time.Duration(*c.RequeueAfterSeconds) * time.Second
}

func retries(c *kueue.AdmissionCheckState) int32 {
	if c.RetryCount == nil {
		return 0
	}
	return *c.RetryCount
}

// The pause before a Workload may ask for quota again though no place was seen: firstPause,
// doubled with each time, up to lastPause. A place that is seen ends it.
const (
	firstPause = 10 * time.Second
	lastPause  = time.Minute
)

// pauseAfter is the pause after so many times without a place.
func pauseAfter(retries int32) time.Duration {
	const steps = 3 // 10 s doubled so often is more than lastPause
	return min(firstPause<<min(max(retries-1, 0), steps), lastPause)
}

// queuedFor is for how long a place is kept for a Workload that was told of it and is in Kueue's queue:
// more than Kueue takes to give it quota. One that gets none must not keep others waiting.
const queuedFor = 5 * time.Second

// A Workload that found no place so often, which takes ten minutes of pauses at least, is given
// quota again though there is none, and keeps it for keepQuota: what ends meanwhile stays free, and
// not all of it is filled again by others. Else large jobs among many small ones would never start.
const (
	starvesAfter = 12
	keepQuota    = 10 * time.Minute
)

func starves(w *kueue.Workload) bool {
	c := checkOf(w)
	return c != nil && retries(c) >= starvesAfter
}
