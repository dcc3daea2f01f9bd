// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// pauser makes Kueue keep a Workload out of its queue for a while after evicting it. It plans nothing,
// and needs no batching: Kueue requeues the Workload within a few of its own writes. If Kueue is faster,
// the Workload gets quota and the same result once more.
type pauser struct {
	writer *writer
	clock  clock.Clock
}

// Reconcile takes the next pause step of one Workload.
func (p *pauser) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var w kueue.Workload
	if err := p.writer.client.Get(ctx, req.NamespacedName, &w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	step := nextPause(&w, p.clock.Now())
	if step == nil {
		return ctrl.Result{}, nil
	}
	_, err := p.writer.write(ctx, step)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // the concurrent write triggers another reconciliation
	}
	return ctrl.Result{}, err
}

// nextPause returns the next step of a Workload that Kueue evicted; nil if none is due.
func nextPause(w *kueue.Workload, now time.Time) *Step {
	at := stageOf(w, now)
	if at == evicted {
		step := pause(w, now, reasonOf(w), retries(checkOf(w)))
		return &step
	}
	if at != timed {
		return nil
	}
	step := hold(w, now)
	return &step
}

// hold returns the step that sets the check to Pending again. Its time is after that of the eviction, by
// which afterEviction sees that the check was not reset since: both are in seconds.
func hold(w *kueue.Workload, now time.Time) Step {
	c := checkOf(w)
	if first := evictedAt(w).Add(time.Second); now.Before(first) {
		now = first
	}
	return Step{w, Hold, &kueue.AdmissionCheckState{
		Name: c.Name, State: kueue.CheckPending, Message: c.Message, LastTransitionTime: metav1.NewTime(now), RetryCount: c.RetryCount,
	}}
}

// pause returns the step that tells Kueue when to try again, after retries attempts without a place.
func pause(w *kueue.Workload, now time.Time, why string, retries int32) Step {
	seconds := int32(pauseAfter(retries) / time.Second)
	return Step{w, Pause, &kueue.AdmissionCheckState{
		Name: names.CheckPlacementObject, State: kueue.CheckRetry, Message: why, LastTransitionTime: metav1.NewTime(now),
		RetryCount: &retries, RequeueAfterSeconds: &seconds,
	}}
}

// reasonOf returns why there was no place. Kueue empties the check's message when it evicts, and keeps
// it in its own: "… in Retry state: "nvtopo-placement" (rack: 3 of 4)".
func reasonOf(w *kueue.Workload) string {
	c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if c == nil {
		return "no place"
	}
	_, why, ok := strings.Cut(c.Message, `"`+names.CheckPlacementObject+`" (`)
	if !ok {
		return c.Message
	}
	why, _, _ = strings.Cut(why, "); ")
	return strings.TrimSuffix(why, ")")
}
