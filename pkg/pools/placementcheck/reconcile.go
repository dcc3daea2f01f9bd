// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Reconciler decides the check for all Workloads in one round. Only one round runs at a time.
type Reconciler struct {
	client   client.Client
	writer   *writer
	live     client.Reader // the API server itself
	recorder record.EventRecorder
	clock    clock.Clock
	graphs   *Graphs
	// written are Workloads after our last writes, which the cache may not have yet; nil where the
	// outcome of the write is unknown.
	written map[types.UID]*kueue.Workload
	took    atomic.Int64 // duration of the last round in nanoseconds
}

// Reconcile makes one round. The request is not used.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	began := r.clock.Now()
	w, err := r.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	w.Now = began
	steps, again := NextRound(w, r.graphs)
	took := r.clock.Since(began)
	r.took.Store(int64(took))
	if len(steps) > 0 {
		roundSeconds.Observe(took.Seconds())
	}
	after, err := r.write(ctx, steps)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !again.IsZero() {
		due := max(again.Sub(r.clock.Now()), time.Second)
		if after == 0 || due < after {
			after = due
		}
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// read reads the cluster from the cache, whose objects must not be changed, and adds later writes.
func (r *Reconciler) read(ctx context.Context) (*World, error) {
	w := &World{}
	var (
		nodes      v1.NodeList
		pods       v1.PodList
		topologies topologyv1alpha1.NodeGPUTopologyList
		classes    schedulingv1.PriorityClassList
		flavors    kueue.ResourceFlavorList
		cohorts    kueue.CohortList
		queues     kueue.ClusterQueueList
		locals     kueue.LocalQueueList
		workloads  kueue.WorkloadList
	)
	for _, list := range []client.ObjectList{&workloads, &nodes, &topologies, &pods, &classes, &flavors, &cohorts, &queues, &locals} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	w.Nodes, w.Pods, w.Topologies, w.PriorityClasses = nodes.Items, pods.Items, topologies.Items, classes.Items
	w.Flavors, w.Cohorts, w.ClusterQueues, w.LocalQueues, w.Workloads = flavors.Items, cohorts.Items, queues.Items, locals.Items, workloads.Items
	var ct topologyv1alpha1.ClusterTopology
	switch err := r.client.Get(ctx, types.NamespacedName{Name: topologyv1alpha1.ClusterTopologyName}, &ct); {
	case err == nil:
		w.ClusterTopology = &ct
	case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("get the ClusterTopology: %w", err)
	}
	return w, r.overlay(ctx, w)
}

// overlay replaces Workloads by their written versions where the cache is behind. Otherwise a place that
// was just promised could be promised again.
func (r *Reconciler) overlay(ctx context.Context, w *World) error {
	seen := map[types.UID]bool{}
	for i := range w.Workloads {
		cached := &w.Workloads[i]
		seen[cached.UID] = true
		known, ok := r.written[cached.UID]
		if ok && known == nil {
			known = &kueue.Workload{}
			if err := r.live.Get(ctx, client.ObjectKeyFromObject(cached), known); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("get Workload %s/%s, of which a write got no answer: %w", cached.Namespace, cached.Name, err)
			}
			r.written[cached.UID] = known
		}
		switch {
		case !ok:
		case older(cached.ResourceVersion, known.ResourceVersion):
			w.Workloads[i] = *known
		default:
			delete(r.written, cached.UID)
		}
	}
	for uid := range r.written {
		if !seen[uid] {
			delete(r.written, uid)
		}
	}
	return nil
}

// older reports whether a version of an object is before another one.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
