// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// Fields by which the cache finds objects.
const (
	indexPodUID    = "metering.uid"
	indexPodNode   = "metering.node"
	indexRecordPod = "metering.podUID"
	indexBatchPod  = "metering.batched"
)

// workers is the number of pods whose records are written at once. Each one waits for the API server.
const workers = 8

// recorded is the usual time after its binding until a pod's records are in the cache. Later updates of
// a running pod are handled after that delay: earlier, the records would be created a second time, in
// vain.
const recorded = time.Second

// Options are the settings of metering.
type Options struct {
	// Namespace has the Lease, and the records whose own namespace is being deleted.
	Namespace string
	// Clock is the time; nil means the real one.
	Clock clock.Clock
}

// Setup registers the metering controller with the manager.
func Setup(mgr manager.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	r := &reconciler{
		client: mgr.GetClient(), reader: mgr.GetAPIReader(), namespace: opts.Namespace, clock: opts.Clock,
		events: mgr.GetEventRecorderFor(names.FieldOwner), memory: newMemory(),
	}
	r.heartbeat = &heartbeat{client: mgr.GetClient(), reader: mgr.GetAPIReader(), namespace: opts.Namespace, clock: opts.Clock, behind: r.behind}
	if err := index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := mgr.Add(r.heartbeat); err != nil {
		return fmt.Errorf("add the heartbeat of metering: %w", err)
	}
	skip := true // tests have several managers in one process
	err := builder.TypedControllerManagedBy[types.UID](mgr).
		Named("metering").
		Watches(&v1.Pod{}, r.pods()).
		Watches(&v1alpha1.UsageRecord{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []types.UID {
			record, ok := o.(*v1alpha1.UsageRecord)
			if !ok {
				return nil
			}
			return []types.UID{record.Spec.PodUID}
		})).
		Watches(&v1.Namespace{}, r.podsWhere(func(o client.Object) []client.ListOption {
			return []client.ListOption{client.InNamespace(o.GetName())}
		}), builder.WithPredicates(labelsChange)).
		Watches(&v1.Node{}, r.podsWhere(func(o client.Object) []client.ListOption {
			return []client.ListOption{client.MatchingFields{indexPodNode: o.GetName()}}
		}), builder.WithPredicates(labelsChange)).
		Watches(&v1alpha1.ComputePool{}, r.podsWhere(func(client.Object) []client.ListOption { return nil }),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.TypedOptions[types.UID]{MaxConcurrentReconciles: workers, SkipNameValidation: &skip}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make the controller of metering: %w", err)
	}
	return nil
}

func index(indexer client.FieldIndexer) error {
	ctx := context.Background() // it bounds nothing: the informers are the manager's
	for _, i := range []struct {
		object client.Object
		field  string
		value  func(client.Object) []string
	}{
		{&v1.Pod{}, indexPodUID, func(o client.Object) []string { return []string{string(o.GetUID())} }},
		{&v1.Pod{}, indexPodNode, func(o client.Object) []string {
			if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}
			}
			return nil
		}},
		{&v1alpha1.UsageRecord{}, indexRecordPod, func(o client.Object) []string {
			if record, ok := o.(*v1alpha1.UsageRecord); ok {
				return []string{string(record.Spec.PodUID)}
			}
			return nil
		}},
		{&v1alpha1.UsageBatch{}, indexBatchPod, podsOfBatch},
	} {
		if err := indexer.IndexField(ctx, i.object, i.field, i.value); err != nil {
			return fmt.Errorf("index %s: %w", i.field, err)
		}
	}
	return nil
}

// podsOfBatch returns the UIDs of the pods of a batch's sessions.
func podsOfBatch(o client.Object) []string {
	batch, ok := o.(*v1alpha1.UsageBatch)
	if !ok {
		return nil
	}
	var uids []string
	for i := range batch.Spec.Groups {
		for _, s := range batch.Spec.Groups[i].Sessions {
			uids = append(uids, string(s.PodUID))
		}
	}
	return uids
}

// labelsChange passes updates that change labels, and no deletions.
var labelsChange = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

type queue = workqueue.TypedRateLimitingInterface[types.UID]

// pods returns the handler that enqueues pods that may hold devices, and remembers deleted ones.
func (r *reconciler) pods() handler.TypedEventHandler[client.Object, types.UID] {
	add := func(o client.Object, q queue) {
		if pod, ok := o.(*v1.Pod); ok && concerns(pod) {
			q.Add(pod.UID)
		}
	}
	return handler.TypedFuncs[client.Object, types.UID]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			switch {
			case e.ObjectOld.GetUID() != e.ObjectNew.GetUID(): // one was deleted and another created, unobserved
				r.remember(e.ObjectOld, true)
				add(e.ObjectOld, q)
				add(e.ObjectNew, q)
			case holdsOn(e.ObjectOld) && holdsOn(e.ObjectNew):
				q.AddAfter(e.ObjectNew.GetUID(), recorded)
			default:
				add(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.remember(e.Object, e.DeleteStateUnknown)
			add(e.Object, q)
		},
	}
}

// remember keeps a pod whose deletion was seen.
func (r *reconciler) remember(o client.Object, unsure bool) {
	if pod, ok := o.(*v1.Pod); ok && concerns(pod) {
		r.memory.keep(pod.DeepCopy(), goneAt(pod, unsure, r.heartbeat.lastBeat(), r.clock.Now()))
	}
}

// concerns reports whether the pod is bound and requests devices, or waits for its end to be written.
func concerns(pod *v1.Pod) bool {
	if slices.Contains(pod.Finalizers, names.FinalizerMetering) {
		return true
	}
	return pod.Spec.NodeName != "" && units.AsksForDevices(pod)
}

// holdsOn reports whether the pod is bound, holds devices, and is not about to end.
func holdsOn(o client.Object) bool {
	pod, ok := o.(*v1.Pod)
	return ok && pod.Spec.NodeName != "" && units.AsksForDevices(pod) && pod.DeletionTimestamp == nil && !isOver(pod)
}

// podsWhere returns the handler that enqueues the pods that belong to an object, whose tenant or pool
// may have changed.
func (r *reconciler) podsWhere(of func(client.Object) []client.ListOption) handler.TypedEventHandler[client.Object, types.UID] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []types.UID {
		var pods v1.PodList
		if err := r.client.List(ctx, &pods, of(o)...); err != nil {
			return nil // the cache is stopping, and this process with it
		}
		var uids []types.UID
		for i := range pods.Items {
			if concerns(&pods.Items[i]) {
				uids = append(uids, pods.Items[i].UID)
			}
		}
		return uids
	})
}

// behind counts the open records whose pod does not exist, except restored ones, which stay open until
// they are settled.
func (r *reconciler) behind(ctx context.Context) (int, error) {
	var records v1alpha1.UsageRecordList
	if err := r.client.List(ctx, &records); err != nil {
		return 0, fmt.Errorf("list records: %w", err)
	}
	n := 0
	for i := range records.Items {
		record := &records.Items[i]
		if record.Status.End != nil || accounting.Restored(record) {
			continue
		}
		var pods v1.PodList
		if err := r.client.List(ctx, &pods, client.MatchingFields{indexPodUID: string(record.Spec.PodUID)}); err != nil {
			return 0, fmt.Errorf("find pod %s: %w", record.Spec.PodUID, err)
		}
		if len(pods.Items) == 0 {
			n++
		}
	}
	return n, nil
}
