// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"context"
	"fmt"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/computepool"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// retry is the interval at which a job is reconciled whose obstacle this controller does not watch.
const retry = time.Minute

// reconciler keeps the Jobs of ElasticJobs.
type reconciler struct {
	client  client.Client // reads from the cache, ElasticJobs too
	live    client.Reader // reads from the API server
	events  record.EventRecorder
	clock   clock.PassiveClock
	metrics *jobMetrics
}

// newObject returns an ElasticJob as this controller reads it: see decode.
func newObject() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ElasticJobKind))
	return u
}

// Reconcile carries out the next steps that a job needs, and writes its status.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	u := newObject()
	if err := r.client.Get(ctx, req.NamespacedName, u); err != nil {
		r.metrics.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ej, faults, err := decode(u)
	if err != nil {
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	if ej.DeletionTimestamp != nil { // the garbage collector deletes the objects that the job owns
		r.metrics.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	s, err := r.observe(ctx, ej)
	if err != nil {
		return ctrl.Result{}, err
	}
	f := &findings{faults: faults}
	rendered, err := r.render(ctx, ej, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	steps, again := plan(ej, rendered, s, r.clock.Now())
	failure := r.carryOut(ctx, ej, rendered, steps, f)
	if f.taken != "" || f.refused != "" || len(f.faults) > 0 {
		again = soonest(again, retry)
	}
	if err := r.report(ctx, u, ej, statusOf(ej, s, f, r.clock.Now())); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, failure
}

// soonest returns the shorter of two waiting times, of which 0 is for ever.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// render returns the objects of a job. It returns nil where f has the reason why they cannot be
// rendered.
func (r *reconciler) render(ctx context.Context, ej *v1alpha1.ElasticJob, f *findings) (*Rendered, error) {
	pool, err := r.place(ctx, ej, f)
	if err != nil || pool == nil {
		return nil, err
	}
	if len(f.faults) == 0 {
		f.checked = true
		f.faults = complete(ej, pool)
	}
	if len(f.faults) > 0 {
		f.block(ReasonTemplateInvalid, faultMessage(f.faults))
	}
	if f.blocked != "" {
		return nil, nil
	}
	rendered := Render(ej, pool)
	f.never = computepool.NeverFits(pool, f.tenant, rendered.Base)
	return rendered, nil
}

// place finds the job's tenant, pool and queue. The returned pool is nil if it does not exist.
func (r *reconciler) place(ctx context.Context, ej *v1alpha1.ElasticJob, f *findings) (*v1alpha1.ComputePool, error) {
	namespace := &v1.Namespace{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: ej.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", ej.Namespace, err)
	}
	if f.tenant = namespace.Labels[v1alpha1.LabelTenant]; f.tenant == "" {
		f.block(ReasonNoTenant, fmt.Sprintf("namespace %s has no label %s", ej.Namespace, v1alpha1.LabelTenant))
	}
	pool := &v1alpha1.ComputePool{}
	err := r.client.Get(ctx, types.NamespacedName{Name: ej.Spec.Pool}, pool)
	if apierrors.IsNotFound(err) {
		f.block(ReasonPoolNotFound, "there is no ComputePool "+ej.Spec.Pool)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ComputePool %s: %w", ej.Spec.Pool, err)
	}
	return pool, r.findQueue(ctx, ej, pool, f)
}

func (r *reconciler) findQueue(ctx context.Context, ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool, f *findings) error {
	if why := queueFault(ej, pool); why != "" {
		f.block(ReasonQueueNotFound, why)
	}
	queue := names.LocalQueue(ej.Spec.Pool, ej.Spec.Queue)
	err := r.client.Get(ctx, types.NamespacedName{Namespace: ej.Namespace, Name: queue}, &kueue.LocalQueue{})
	if apierrors.IsNotFound(err) {
		f.block(ReasonQuotaNotConfigured, fmt.Sprintf("ComputePool %s gives tenant %s no quota: there is no LocalQueue %s/%s", pool.Name, f.tenant, ej.Namespace, queue))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read LocalQueue %s/%s: %w", ej.Namespace, queue, err)
	}
	return nil
}

// queueFault returns why spec.queue is not a queue of the pool; empty if it is.
func queueFault(ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool) string {
	var have []string
	for i := range pool.Spec.Queues {
		have = append(have, pool.Spec.Queues[i].Name)
	}
	switch {
	case len(have) == 0 && ej.Spec.Queue != "":
		return fmt.Sprintf("spec.queue: %q: ComputePool %s has no queues; leave spec.queue out", ej.Spec.Queue, pool.Name)
	case len(have) > 0 && ej.Spec.Queue == "":
		return fmt.Sprintf("spec.queue: the job names none; the queues of ComputePool %s are: %s", pool.Name, strings.Join(have, ", "))
	case len(have) > 0 && queueOf(ej, pool) == nil:
		return fmt.Sprintf("spec.queue: %q: the queues of ComputePool %s are: %s", ej.Spec.Queue, pool.Name, strings.Join(have, ", "))
	}
	return ""
}

// report writes the status if it changed. Only the writer records the events between the last status and
// this one: of two that read the same last status one gets a conflict.
func (r *reconciler) report(ctx context.Context, u *unstructured.Unstructured, ej *v1alpha1.ElasticJob, status *v1alpha1.ElasticJobStatus) error {
	r.metrics.show(ej, status)
	if equality.Semantic.DeepEqual(&ej.Status, status) {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("write the status of ElasticJob %s/%s: %w", ej.Namespace, ej.Name, err)
	}
	changed := u.DeepCopy()
	changed.Object["status"] = fields
	err = r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(u, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the cache is behind; its next event reconciles the job again
	}
	if err != nil {
		return fmt.Errorf("write the status of ElasticJob %s/%s: %w", ej.Namespace, ej.Name, err)
	}
	for _, e := range happened(&ej.Status, status) {
		r.events.Event(u, e.kind, e.reason, e.message)
	}
	r.metrics.count(&ej.Status, status)
	return nil
}
