// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// activator creates the AdmissionCheck and keeps it active: Kueue gives no quota in queues with an
// inactive check.
type activator struct{ client client.Client }

// Reconcile creates the AdmissionCheck if it is missing, and sets its condition Active.
func (a *activator) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var have kueue.AdmissionCheck
	err := a.client.Get(ctx, client.ObjectKey{Name: names.CheckPlacementObject}, &have)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get AdmissionCheck %s: %w", names.CheckPlacementObject, err)
	}
	if err != nil || have.Spec.ControllerName != names.CheckPlacement {
		spec := newCheck()
		spec.Spec.ControllerName = names.CheckPlacement
		if err := a.client.Patch(ctx, spec, client.Apply, client.FieldOwner(names.FieldOwner), client.ForceOwnership); err != nil {
			return ctrl.Result{}, fmt.Errorf("apply AdmissionCheck %s: %w", names.CheckPlacementObject, err)
		}
		have = *spec
	}
	if c := meta.FindStatusCondition(have.Status.Conditions, kueue.AdmissionCheckActive); c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == have.Generation {
		return ctrl.Result{}, nil
	}
	status := newCheck()
	status.Status.Conditions = []metav1.Condition{{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: "jobs are asked for a place before they start",
		ObservedGeneration: have.Generation, LastTransitionTime: metav1.Now(),
	}}
	if err := a.client.Status().Patch(ctx, status, client.Apply, client.FieldOwner(names.FieldOwner), client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply the status of AdmissionCheck %s: %w", names.CheckPlacementObject, err)
	}
	return ctrl.Result{}, nil
}

func newCheck() *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kueue.AdmissionCheckKind},
		ObjectMeta: metav1.ObjectMeta{Name: names.CheckPlacementObject},
	}
}
