// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// stage is a Workload's progress, derived from its status alone.
//
//	asking ──Ready──► promised ──pods are bound──► (done)
//	   │ Retry
//	   ▼        Kueue evicts           Kueue notes the time
//	retried ──────────────► evicted ──Retry, time──► timed ──Pending──► held ──a place, or the time──► queued ──quota──► asking
//
// The detour exists because Kueue keeps the quota of a Retry with a time until that time, and drops the
// time when it evicts: so it evicts first, and is given the time afterwards.
type stage uint8

const (
	elsewhere stage = iota // not ours, ended, or waiting for Kueue
	asking                 // has quota, and no decision
	promised               // has quota, and was told to start
	evicted                // was told that there is no place, and Kueue has no retry time yet
	timed                  // Kueue has the time, and the check is still Retry
	held                   // waits for that time or a place, without quota
	queued                 // its pause has ended: Kueue is about to give it quota
)

// checkOf returns our check's state in a Workload; nil if the check does not apply to it.
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

// afterEviction returns the stage of a Workload that Kueue evicted because of a check.
func afterEviction(w *kueue.Workload, c *kueue.AdmissionCheckState, now time.Time) stage {
	until := c.LastTransitionTime.Add(afterRetry(c))
	quota, requeued := isTrue(w, kueue.WorkloadQuotaReserved), isTrue(w, kueue.WorkloadRequeued)
	heldSince := c.LastTransitionTime.After(evictedAt(w)) // since the eviction, which sets a check's time to its own
	switch {
	case c.State == kueue.CheckRetry && (now.After(until) || !requeueAt(w).Before(until)):
		return timed
	case c.State != kueue.CheckPending || retries(c) == 0 || c.LastTransitionTime.Time.Before(evictedAt(w)):
		// Kueue is next, or another check caused the eviction.
	case requeueAt(w).After(now):
		return held
	case heldSince && !quota && (!requeued || !now.After(inQueueSince(w).Add(queuedFor))):
		return queued
	case !heldSince && (quota || !requeued):
		return evicted // and not requeued: for a requeued one Kueue would honor the time only in part
	}
	return elsewhere
}

// withQuota returns the stage of a Workload that holds quota. One that was admitted without our check
// also occupies its pods' places.
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

// evictedAt returns when Kueue last evicted the Workload.
func evictedAt(w *kueue.Workload) time.Time { return changedAt(w, kueue.WorkloadEvicted) }

// inQueueSince returns when Kueue requeued the Workload, if it did.
func inQueueSince(w *kueue.Workload) time.Time { return changedAt(w, kueue.WorkloadRequeued) }

// changedAt returns the last transition of a condition; zero if there is none.
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

// requeueAt returns the time until which Kueue leaves the Workload out of its queue; zero if it does
// not.
func requeueAt(w *kueue.Workload) time.Time {
	if s := w.Status.RequeueState; s != nil && s.RequeueAt != nil {
		return s.RequeueAt.Time
	}
	return time.Time{}
}

// afterRetry returns the time that a Retry tells Kueue to wait.
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

// The pause before a Workload may queue for quota again without a known place: firstPause, doubled each
// time, up to lastPause. A place that is found ends it.
const (
	firstPause = 10 * time.Second
	lastPause  = time.Minute
)

// pauseAfter returns the pause after the given number of attempts without a place.
func pauseAfter(retries int32) time.Duration {
	const steps = 3 // 10 s doubled that often exceeds lastPause
	return min(firstPause<<min(max(retries-1, 0), steps), lastPause)
}

// queuedFor is how long a place is kept for a Workload that was released for it and is in Kueue's queue:
// more than Kueue takes to give it quota. One that gets none must not keep others waiting.
const queuedFor = 5 * time.Second

// A Workload that found no place starvesAfter times, which takes ten minutes of pauses at least, is
// given quota again without a place, and keeps it for keepQuota: devices that are released meanwhile
// stay free, rather than all being taken by others. Otherwise large jobs among many small ones would
// never start.
const (
	starvesAfter = 12
	keepQuota    = 10 * time.Minute
)

func starves(w *kueue.Workload) bool {
	c := checkOf(w)
	return c != nil && retries(c) >= starvesAfter
}
