// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// Reasons of events on Workloads. Ready has none: Kueue has an event of its own for each job that it
// admits, and the check's message about the place stays in the Workload's status.
const (
	eventRetry = "PlacementRetry"
	eventWait  = "PlacementWait"
)

// writers is the number of Workloads written at a time.
const writers = 8

// write writes the steps of a round. again is the latest time until the next round, if a Workload was
// changed concurrently, or its check was refused; 0 if neither.
func (r *Reconciler) write(ctx context.Context, steps []Step) (again time.Duration, err error) {
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		failed []error
		slots  = make(chan struct{}, writers)
	)
	for i := range steps {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			of := steps[i].Workload
			after, err := r.writer.write(ctx, &steps[i])
			refused := refusal.Of(err, "the placement check of Workload "+of.Namespace+"/"+of.Name)
			mu.Lock()
			defer mu.Unlock()
			switch uid := of.UID; {
			case err == nil:
				r.written[uid] = after
				r.tell(&steps[i])
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				again = gather
			case refused != "": // it was certainly not carried out
				if again == 0 {
					again = refusal.Again
				}
				r.recorder.Event(of, v1.EventTypeWarning, refusal.EventRefused, refused)
			default:
				r.written[uid] = nil
				failed = append(failed, err)
			}
		})
	}
	wait.Wait()
	return again, errors.Join(failed...)
}

// writer writes single steps.
type writer struct{ client client.Client }

// write carries out a step, and returns the Workload after it. Each write is valid only for the version
// that was decided on.
func (w *writer) write(ctx context.Context, step *Step) (*kueue.Workload, error) {
	of := step.Workload
	out := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kueue.WorkloadKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion},
	}
	if step.Kind == Release {
		// Kueue's own entry, whose removal ends the pause. It cannot be removed by an apply.
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"requeueState":{"requeueAt":null}}}`, of.ResourceVersion)
		if err := w.client.Status().Patch(ctx, out, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldOwner)); err != nil {
			return nil, fmt.Errorf("end the pause of Workload %s/%s: %w", of.Namespace, of.Name, err)
		}
		return out, nil
	}
	out.Status.AdmissionChecks = []kueue.AdmissionCheckState{*step.Check}
	if err := w.client.Status().Patch(ctx, out, client.Apply, client.FieldOwner(names.FieldOwner), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("apply the check of Workload %s/%s: %w", of.Namespace, of.Name, err)
	}
	return out, nil
}

// tell counts a decision and records its event.
func (r *Reconciler) tell(step *Step) {
	if step.Kind != Answer {
		return
	}
	switch w, c := step.Workload, step.Check; c.State {
	case kueue.CheckReady:
		count(w, resultReady, r.clock.Now())
	case kueue.CheckRetry:
		count(w, resultRetry, r.clock.Now())
		r.recorder.Event(w, v1.EventTypeNormal, eventRetry, "no place for its pods, so its quota is for others: "+c.Message)
	default:
		r.recorder.Event(w, v1.EventTypeNormal, eventWait, c.Message)
	}
}
