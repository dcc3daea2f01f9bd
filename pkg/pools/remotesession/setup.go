// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const controllerName = "remotesession"

// Setup registers the controller of sessions with the manager; gateImage is the image of gates. Without
// one, each session reports that it is missing.
func Setup(mgr manager.Manager, gateImage string, passive clock.PassiveClock) error {
	r := &reconciler{
		Client: mgr.GetClient(), api: mgr.GetAPIReader(), events: mgr.GetEventRecorderFor(names.FieldOwner), clock: passive, image: gateImage,
	}
	err := ctrl.NewControllerManagedBy(mgr).Named(controllerName).
		For(&v1alpha1.RemoteGPUSession{}).Owns(&batchv1.Job{}).
		Watches(&v1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofLabel)).
		Watches(&v1.Service{}, handler.EnqueueRequestsFromMapFunc(ofLabel)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("register the controller %s: %w", controllerName, err)
	}
	return nil
}

// ofLabel returns a request for the session of a pod or Service.
func ofLabel(_ context.Context, o client.Object) []reconcile.Request {
	session := o.GetLabels()[names.LabelSession]
	if session == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: session}}}
}
