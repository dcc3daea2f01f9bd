// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"context"
	"errors"
	"fmt"
	"maps"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// workers is the number of jobs reconciled at a time. Each one is some writes to the API server.
const workers = 8

// Setup registers the ElasticJob controller with the manager. The manager's client has to read
// unstructured objects from its cache.
func Setup(mgr manager.Manager) error {
	metrics, err := newMetrics(ctrlmetrics.Registry)
	if err != nil {
		return fmt.Errorf("register the metrics of ElasticJobs: %w", err)
	}
	if err := addIndices(mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index what ElasticJobs own: %w", err)
	}
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorderFor(names.FieldOwner), clock: clock.RealClock{}, metrics: metrics,
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("elasticjob").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		For(newObject()).
		Owns(&batchv1.Job{}).
		Owns(&v1.Service{}, builder.OnlyMetadata).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace), builder.WithPredicates(appears())).
		Watches(&v1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(relabelled())).
		Watches(&v1alpha1.ComputePool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of ElasticJobs: %w", err)
	}
	return nil
}

func addIndices(indexer client.FieldIndexer) error {
	ctx := context.Background() // it bounds nothing: the informers are the manager's
	one := func(name string) []string {
		if name == "" {
			return nil
		}
		return []string{name}
	}
	return errors.Join(
		indexer.IndexField(ctx, &batchv1.Job{}, jobsByElasticJob, func(o client.Object) []string {
			return one(controllerName(o, v1alpha1.ElasticJobKind))
		}),
		indexer.IndexField(ctx, &kueue.Workload{}, workloadsByJob, func(o client.Object) []string {
			return one(controllerName(o, "Job"))
		}),
		indexer.IndexField(ctx, newObject(), jobsByPool, func(o client.Object) []string {
			u, _ := o.(*unstructured.Unstructured)
			pool, _, _ := unstructured.NestedString(u.Object, "spec", "pool")
			return one(pool)
		}),
	)
}

// appears passes creations and deletions of an object, and no updates.
func appears() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

func relabelled() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
}

// ofWorkload returns a request for the ElasticJob whose Job a Workload was made of.
func (r *reconciler) ofWorkload(ctx context.Context, o client.Object) []reconcile.Request {
	name := controllerName(o, "Job")
	if name == "" {
		return nil
	}
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, job); err != nil {
		return nil // the Job's own event follows, or it is gone
	}
	if owner := controllerName(job, v1alpha1.ElasticJobKind); owner != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner}}}
	}
	return nil
}

func (r *reconciler) inNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, client.InNamespace(o.GetNamespace()))
}

func (r *reconciler) ofNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, client.InNamespace(o.GetName()))
}

func (r *reconciler) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return r.list(ctx, client.MatchingFields{jobsByPool: o.GetName()})
}

func (r *reconciler) list(ctx context.Context, which client.ListOption) []reconcile.Request {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ElasticJobKind + "List"))
	if err := r.client.List(ctx, list, which, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List ElasticJobs")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}
