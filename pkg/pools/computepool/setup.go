// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"context"
	"fmt"
	"maps"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Events are batched for a while before a pool is reconciled: a job that starts causes some hundred of
// them, and each reconciliation reads all pods. soon is for events that may change Kueue's objects or
// release a job. later is for those that usually change only the pool's status.
const (
	soon  = 100 * time.Millisecond
	later = time.Second
)

// Options of the controller.
type Options struct {
	// PlacementCheck makes jobs pass the check of package placementcheck before they are admitted. Its
	// controller has to run, or no job is admitted.
	PlacementCheck bool
	// Clock is the clock of the metric of waiting times.
	Clock clock.PassiveClock
}

// Setup registers the controllers with a manager.
func Setup(mgr manager.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorderFor(names.FieldOwner),
		metrics: newCollector(o.Clock), placement: o.PlacementCheck,
	}
	if err := metrics.Registry.Register(r.metrics); err != nil {
		return fmt.Errorf("register the metrics of pools: %w", err)
	}
	allSoon, allLater := gathered{r.allPools, soon}, gathered{r.allPools, later}
	ownSoon, ownLater := gathered{managedBy, soon}, gathered{managedBy, later}
	generation := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	b := builder.ControllerManagedBy(mgr).Named("computepool").
		For(&v1alpha1.ComputePool{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		// A pool that is created, deleted or selects other nodes changes the nodes of other pools.
		Watches(&v1alpha1.ComputePool{}, allSoon, generation).
		Watches(&v1.Node{}, allSoon, builder.WithPredicates(onUpdate(nodeDiffers))).
		Watches(&topology.NodeGPUTopology{}, allSoon, builder.WithPredicates(onUpdate(healthDiffers))).
		Watches(&v1.Pod{}, allLater, builder.WithPredicates(onUpdate(podDiffers))).
		Watches(&v1.Namespace{}, allSoon, builder.WithPredicates(onUpdate(namespaceDiffers))).
		Watches(&batchv1.Job{}, allSoon, builder.WithPredicates(predicate.NewPredicateFuncs(isProtected))).
		Watches(elasticJob(), allSoon, generation).
		Watches(&kueue.Workload{}, allSoon, builder.WithPredicates(predicate.NewPredicateFuncs(isProtectedWorkload))).
		Watches(&kueue.Workload{}, allLater)
	for _, object := range []client.Object{&kueue.ClusterQueue{}, &kueue.Cohort{}, &kueue.ResourceFlavor{}, &kueue.LocalQueue{}} {
		b = b.Watches(object, ownSoon, generation).Watches(object, ownLater)
	}
	err := b.Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of pools: %w", err)
	}
	return setupDefaultQueue(mgr)
}

// gathered enqueues pools with a delay, so that events are batched.
type gathered struct {
	of    handler.MapFunc
	after time.Duration
}

type poolQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Create enqueues the pools of a new object.
func (g gathered) Create(ctx context.Context, e event.CreateEvent, q poolQueue) {
	g.enqueue(ctx, e.Object, q)
}

// Update enqueues the pools of a changed object; if its labels changed, also those it belonged to
// before.
func (g gathered) Update(ctx context.Context, e event.UpdateEvent, q poolQueue) {
	if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
		g.enqueue(ctx, e.ObjectOld, q)
	}
	g.enqueue(ctx, e.ObjectNew, q)
}

// Delete enqueues the pools of a deleted object.
func (g gathered) Delete(ctx context.Context, e event.DeleteEvent, q poolQueue) {
	g.enqueue(ctx, e.Object, q)
}

// Generic enqueues the pools of the object; no watch here sends such events.
func (g gathered) Generic(ctx context.Context, e event.GenericEvent, q poolQueue) {
	g.enqueue(ctx, e.Object, q)
}

func (g gathered) enqueue(ctx context.Context, o client.Object, q poolQueue) {
	for _, request := range g.of(ctx, o) {
		q.AddAfter(request, g.after)
	}
}

// allPools returns requests for all pools, since a cluster's object may matter for any of them.
func (r *reconciler) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools v1alpha1.ComputePoolList
	if err := r.client.List(ctx, &pools, asCached); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the pools")
		return nil
	}
	out := make([]reconcile.Request, 0, len(pools.Items))
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: pools.Items[i].Name}})
	}
	return out
}

// managedBy returns a request for the pool that an object of Kueue's belongs to.
func managedBy(_ context.Context, o client.Object) []reconcile.Request {
	pool := o.GetLabels()[names.LabelManaged]
	if pool == "" || pool == names.DefaultQueue {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
}

// onUpdate passes only those updates for which differs is true, and all events that are no updates.
func onUpdate[T client.Object](differs func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, also := e.ObjectNew.(T)
		return ok && also && differs(before, after)
	}}
}

func nodeDiffers(before, after *v1.Node) bool {
	return !maps.Equal(before.Labels, after.Labels) || stateOf(before) != stateOf(after) ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity)
}

func healthDiffers(before, after *topology.NodeGPUTopology) bool {
	return before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.Status.GPUHealth, after.Status.GPUHealth)
}

func podDiffers(before, after *v1.Pod) bool {
	return before.Spec.NodeName != after.Spec.NodeName || before.Status.Phase != after.Status.Phase
}

func namespaceDiffers(before, after *v1.Namespace) bool {
	return !maps.Equal(before.Labels, after.Labels) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

func isProtected(o client.Object) bool {
	return o.GetLabels()[kueue.LabelPriorityClass] == names.ProtectedClass
}

func isProtectedWorkload(o client.Object) bool {
	w, ok := o.(*kueue.Workload)
	return ok && w.Spec.PriorityClassRef != nil && w.Spec.PriorityClassRef.Name == names.ProtectedClass
}
