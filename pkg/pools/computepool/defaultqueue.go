// SPDX-License-Identifier: Apache-2.0

package computepool

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// defaultQueue is the reconciler that gives each tenant's namespace the LocalQueue that Kueue uses for
// jobs and pods that name none. The queue has no quota at all, so jobs without devices run, and those
// with devices wait.
type defaultQueue struct{ *reconciler }

func setupDefaultQueue(mgr manager.Manager) error {
	d := &defaultQueue{&reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader()}}
	err := builder.ControllerManagedBy(mgr).Named("defaultqueue").
		For(&v1.Namespace{}, builder.WithPredicates(onUpdate(namespaceDiffers))).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(namespaceOfDefault)).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(d.namespacesOfDefault), builder.WithPredicates(
			// The status of a ClusterQueue changes with each job.
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Complete(d)
	if err != nil {
		return fmt.Errorf("set up the controller of default queues: %w", err)
	}
	return nil
}

func namespaceOfDefault(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != names.DefaultQueue {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
}

// namespacesOfDefault returns requests for all tenants' namespaces when the shared default ClusterQueue
// changes. The first one that is reconciled repairs it.
func (d *defaultQueue) namespacesOfDefault(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != names.DefaultClusterQueue {
		return nil
	}
	var namespaces v1.NamespaceList
	if err := d.client.List(ctx, &namespaces, asCached, client.HasLabels{v1alpha1.LabelTenant}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the tenants' namespaces")
		return nil
	}
	var out []reconcile.Request
	for i := range namespaces.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespaces.Items[i].Name}})
	}
	return out
}

// Reconcile creates, repairs or removes the default LocalQueue of one namespace, and repairs the
// ClusterQueue behind it.
func (d *defaultQueue) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace := &v1.Namespace{}
	if err := d.client.Get(ctx, req.NamespacedName, namespace); err != nil || namespace.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	there := &kueue.LocalQueue{}
	err := d.client.Get(ctx, client.ObjectKey{Namespace: req.Name, Name: names.DefaultQueue}, there)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the default queue of namespace %s: %w", req.Name, err)
	}
	found := err == nil
	ours := found && there.Labels[names.LabelManaged] == names.DefaultQueue
	switch {
	case found && !ours: // the tenant's own
		return ctrl.Result{}, nil
	case namespace.Labels[v1alpha1.LabelTenant] == "":
		if ours {
			return ctrl.Result{}, d.writeEach(ctx, removal(there))
		}
		return ctrl.Result{}, nil
	}
	wanted := defaultLocalQueue(req.Name)
	switch err := d.keepClusterQueue(ctx); {
	case err != nil || found && same(there, wanted):
		return ctrl.Result{}, err
	case found:
		return ctrl.Result{}, d.write(ctx, Write{Object: wanted, Over: there})
	}
	return ctrl.Result{}, d.write(ctx, Write{Object: wanted})
}

// keepClusterQueue creates or repairs the default ClusterQueue of all namespaces, whatever its labels
// are: its name is the project's own. Additions of other writers, quota for instance, are removed.
func (d *defaultQueue) keepClusterQueue(ctx context.Context) error {
	wanted, there := defaultClusterQueue(), &kueue.ClusterQueue{}
	switch err := d.client.Get(ctx, client.ObjectKeyFromObject(wanted), there); {
	case apierrors.IsNotFound(err):
		return d.write(ctx, Write{Object: wanted})
	case err != nil:
		return fmt.Errorf("read ClusterQueue %s: %w", wanted.Name, err)
	case same(there, wanted):
		return nil
	}
	return d.write(ctx, Write{Object: wanted, Over: there})
}

func defaultClusterQueue() *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		TypeMeta:   typeMeta(kueue.ClusterQueueKind),
		ObjectMeta: metav1.ObjectMeta{Name: names.DefaultClusterQueue, Labels: map[string]string{names.LabelManaged: names.DefaultQueue}},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: everyTenant(), QueueingStrategy: kueue.BestEffortFIFO, StopPolicy: string(v1alpha1.StopNone),
			// Kueue's own default, spelled out so that same finds no difference once the queue exists.
			Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptNever, ReclaimWithinCohort: kueue.PreemptNever},
		},
	}
}

func defaultLocalQueue(namespace string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		TypeMeta: typeMeta(kueue.LocalQueueKind),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: names.DefaultQueue, Labels: map[string]string{names.LabelManaged: names.DefaultQueue},
		},
		Spec: kueue.LocalQueueSpec{ClusterQueue: names.DefaultClusterQueue, StopPolicy: string(v1alpha1.StopNone)},
	}
}
