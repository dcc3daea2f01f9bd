// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Options is the part of Kueue's configuration that the check depends on.
type Options struct {
	// PodsReadyTimeout is Kueue's waitForPodsReady.timeout.
	PodsReadyTimeout time.Duration
}

// Changes are batched for one round: for gather at least, since all Workloads that got quota in one of
// Kueue's cycles need a decision in one batch; for restAfter times the last round, so that rounds never
// take more than a fifth of the time; for longest at most.
const (
	gather    = 100 * time.Millisecond
	restAfter = 4
	longest   = 5 * time.Second
)

// name is the name of the controllers in metrics and logs.
const name = "placementcheck"

// Setup registers the check's controllers with a manager.
func Setup(mgr manager.Manager, o Options) error {
	if err := checkTimeout(o.PodsReadyTimeout); err != nil {
		return err
	}
	check := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == names.CheckPlacementObject })
	err := builder.ControllerManagedBy(mgr).Named(name+"-active").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(check)).
		WatchesRawSource(atStart).
		Complete(&activator{client: mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("set up %s-active: %w", name, err)
	}
	w := &writer{client: mgr.GetClient()}
	err = builder.ControllerManagedBy(mgr).Named(name + "-pause").For(&kueue.Workload{}).Complete(&pauser{writer: w, clock: clock.RealClock{}})
	if err != nil {
		return fmt.Errorf("set up %s-pause: %w", name, err)
	}
	r := &Reconciler{
		client: mgr.GetClient(), writer: w, live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorderFor(name), clock: clock.RealClock{},
		graphs: NewGraphs(), written: map[types.UID]*kueue.Workload{},
	}
	b := builder.ControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{MaxConcurrentReconciles: 1})
	for obj, matters := range map[client.Object]func(before, after client.Object) bool{
		&kueue.Workload{}: always, &kueue.ResourceFlavor{}: newGeneration, &kueue.Cohort{}: newGeneration, &kueue.ClusterQueue{}: newGeneration, &kueue.LocalQueue{}: newGeneration,
		&topologyv1alpha1.NodeGPUTopology{}: always, &topologyv1alpha1.ClusterTopology{}: newGeneration,
		&schedulingv1.PriorityClass{}: always, &v1.Node{}: nodeChanged, &v1.Pod{}: podChanged,
	} {
		b = b.Watches(obj, gathered{&r.took}, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectOld, e.ObjectNew) }}))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// atStart enqueues the AdmissionCheck, which may not exist yet.
var atStart = source.Func(func(_ context.Context, q queue) error {
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: names.CheckPlacementObject}})
	return nil
})

// gathered enqueues one round for all events.
type gathered struct{ took *atomic.Int64 }

func (g gathered) ask(q queue) {
	q.AddAfter(wholeRound, min(max(gather, restAfter*time.Duration(g.took.Load())), longest))
}

var wholeRound = reconcile.Request{NamespacedName: types.NamespacedName{Name: "round"}}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Create enqueues a round.
func (g gathered) Create(_ context.Context, _ event.CreateEvent, q queue) { g.ask(q) }

// Update enqueues a round.
func (g gathered) Update(_ context.Context, _ event.UpdateEvent, q queue) { g.ask(q) }

// Delete enqueues a round.
func (g gathered) Delete(_ context.Context, _ event.DeleteEvent, q queue) { g.ask(q) }

// Generic enqueues a round.
func (g gathered) Generic(_ context.Context, _ event.GenericEvent, q queue) { g.ask(q) }

var _ handler.EventHandler = gathered{}

func always(client.Object, client.Object) bool { return true }

func newGeneration(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration()
}

// nodeChanged reports whether a node may take other pods than before: not for heartbeats.
func nodeChanged(before, after client.Object) bool {
	a, okA := before.(*v1.Node)
	b, okB := after.(*v1.Node)
	return !okA || !okB || a.UID != b.UID || isReady(a) != isReady(b) || !equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Spec, b.Spec) || !equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// podChanged reports whether a pod's node, phase, deletion or allocation has changed.
func podChanged(before, after client.Object) bool {
	a, okA := before.(*v1.Pod)
	b, okB := after.(*v1.Pod)
	return !okA || !okB || a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || a.Status.Phase != b.Status.Phase ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() || a.Annotations[allocation.Key] != b.Annotations[allocation.Key]
}
