// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
)

const controllerName = "virtualization"

// Setup registers the controller. It watches pools and nodes; pods are listed while a node drains.
func Setup(mgr manager.Manager, passive clock.PassiveClock) error {
	r := &reconciler{Client: mgr.GetClient(), api: mgr.GetAPIReader(), events: mgr.GetEventRecorderFor("nvtopo-pool-controller"), clock: passive}
	// A node may join or leave any pool: requests are made for its old and its new state.
	nodes := handler.EnqueueRequestsFromMapFunc(r.poolsOfNode)
	// Status alone changes with each usage of the pool, and is not read here.
	spec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).Named(controllerName).
		For(&v1alpha1.ComputePool{}, spec).Watches(&v1.Node{}, nodes).Complete(r)
	if err != nil {
		return fmt.Errorf("register the controller %s: %w", controllerName, err)
	}
	return nil
}

// poolsOfNode returns requests for the pools that select a node, and for the one that it is cordoned
// for.
func (r *reconciler) poolsOfNode(ctx context.Context, o client.Object) []reconcile.Request {
	var pools v1alpha1.ComputePoolList
	if err := r.List(ctx, &pools); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list pools") // the next event of the node retries
		return nil
	}
	n, ok := o.(*v1.Node)
	if !ok {
		return nil
	}
	cordonedFor := n.Annotations[AnnotationCordon] // it may be gone
	var out []reconcile.Request
	if cordonedFor != "" {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: cordonedFor}})
	}
	for _, p := range membership.In(&pools) {
		if p.Name != cordonedFor && membership.Selects(p, n.Labels) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
		}
	}
	return out
}
