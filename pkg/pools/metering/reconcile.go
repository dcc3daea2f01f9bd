// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// reconciler writes the records of one pod. Its requests are UIDs: a pod's name can later belong to
// another pod.
type reconciler struct {
	client    client.Client
	reader    client.Reader // not the cache
	namespace string        // for records whose own namespace is being deleted
	clock     clock.PassiveClock
	events    record.EventRecorder
	memory    *memory
	heartbeat *heartbeat
}

// Reconcile does the due writes for the pod with this UID. A write that the API server refuses is
// retried until the cause has been removed: meanwhile nothing is lost of a pod with the finalizer.
func (r *reconciler) Reconcile(ctx context.Context, uid types.UID) (reconcile.Result, error) {
	v, err := r.view(ctx, uid)
	if err != nil {
		return reconcile.Result{}, err
	}
	err = r.write(ctx, uid, &v)
	if err == nil || v.pod == nil {
		return reconcile.Result{}, err
	}
	why := refusal.Forbidden(err, "what pod "+v.pod.Namespace+"/"+v.pod.Name+" used")
	if why == "" {
		return reconcile.Result{}, err
	}
	r.events.Event(v.pod, v1.EventTypeWarning, refusal.EventRefused, why)
	return reconcile.Result{RequeueAfter: refusal.Again}, nil
}

// write does the writes that a view requires.
func (r *reconciler) write(ctx context.Context, uid types.UID, v *view) (err error) {
	s := decide(*v)
	if s.goOn() && v.gone.at.IsZero() {
		// The records may have an end that the cache does not show yet.
		if v.pod, err = r.live(ctx, uid, v.pod, nil); err != nil {
			return err
		}
		s = decide(*v)
	}
	records := v.records
	for i := range s.create {
		made, err := r.create(ctx, &s.create[i])
		if err != nil {
			return err
		}
		records = append(records, *made)
	}
	if s.end != nil {
		if err := r.end(ctx, records, *s.end); err != nil {
			return err
		}
	}
	for i := range s.confirm {
		if err := r.confirm(ctx, &s.confirm[i]); err != nil {
			return err
		}
	}
	if s.release {
		if err := r.release(ctx, v.pod); err != nil {
			return err
		}
	}
	if s.end == nil && !hasOpen(v.records) {
		r.memory.forget(uid) // all is written; a kept pod would get new records after these were billed and deleted
	}
	return r.move(ctx, records)
}

func (r *reconciler) view(ctx context.Context, uid types.UID) (view, error) {
	before, err := r.heartbeat.seenUntil(ctx)
	if err != nil {
		return view{}, err
	}
	// At its last beat this process had seen all pods, too.
	v := view{now: r.clock.Now(), seenUntil: later(before, r.heartbeat.lastBeat())}
	var records v1alpha1.UsageRecordList
	if err := r.client.List(ctx, &records, client.MatchingFields{indexRecordPod: string(uid)}); err != nil {
		return view{}, fmt.Errorf("list the records of pod %s: %w", uid, err)
	}
	if v.records, err = r.withBatched(ctx, uid, records.Items); err != nil {
		return view{}, err
	}
	var pods v1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{indexPodUID: string(uid)}); err != nil {
		return view{}, fmt.Errorf("find pod %s: %w", uid, err)
	}
	l, seen := r.memory.of(uid)
	switch {
	case len(pods.Items) > 0:
		v.pod = &pods.Items[0]
	case seen && !l.end.estimated:
		v.pod, v.gone = l.pod, l.end
	case hasOpen(v.records) || seen:
		if v.pod, err = r.live(ctx, uid, l.pod, v.records); err != nil {
			return view{}, err
		}
		if v.pod == nil && seen {
			v.pod, v.gone = l.pod, l.end
		}
	}
	if v.pod != nil && v.pod.Spec.NodeName != "" {
		v.place, err = r.place(ctx, v.pod)
	}
	return v, err
}

// withBatched adds a pod's sessions that are in batches and have no record any more, so that none is
// created again for a pod that a late cache still has.
func (r *reconciler) withBatched(ctx context.Context, uid types.UID, records []v1alpha1.UsageRecord) ([]v1alpha1.UsageRecord, error) {
	var batches v1alpha1.UsageBatchList
	// Batches are large, and only read.
	if err := r.client.List(ctx, &batches, client.MatchingFields{indexBatchPod: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the batches with pod %s: %w", uid, err)
	}
	for i := range batches.Items {
		for _, batched := range accounting.InBatchOf(&batches.Items[i], uid) {
			if !slices.ContainsFunc(records, func(r v1alpha1.UsageRecord) bool { return r.Name == batched.Name }) {
				records = append(records, batched)
			}
		}
	}
	return records, nil
}

// live reads a pod from the API server; it returns nil if the pod is gone. A pod that is missing in the
// cache may exist, since the cache of a new leader may be late, and a written end is final. last is the
// last state of the pod that this process saw. It is nil if it never did; then name and namespace are
// taken from the pod's records.
func (r *reconciler) live(ctx context.Context, uid types.UID, last *v1.Pod, records []v1alpha1.UsageRecord) (*v1.Pod, error) {
	var namespace, name string // all namespaces where the pod's is not known
	if last != nil {
		namespace, name = last.Namespace, last.Name
	} else if name, namespace = records[0].Spec.Pod, records[0].Spec.Namespace; namespace == "" && records[0].Namespace != r.namespace {
		namespace = records[0].Namespace
	}
	var pods v1.PodList
	err := r.reader.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		return nil, fmt.Errorf("look whether pod %s of UID %s is there: %w", name, uid, err)
	}
	k := slices.IndexFunc(pods.Items, func(p v1.Pod) bool { return p.UID == uid })
	if k < 0 {
		return nil, nil
	}
	return &pods.Items[k], nil
}

// place finds tenant, pool and node of a pod. Missing parts are left empty.
func (r *reconciler) place(ctx context.Context, pod *v1.Pod) (place, error) {
	var namespace v1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); client.IgnoreNotFound(err) != nil {
		return place{}, fmt.Errorf("get namespace %s: %w", pod.Namespace, err)
	}
	at := place{tenant: namespace.Labels[v1alpha1.LabelTenant]}
	if at.tenant == "" {
		return at, nil
	}
	var node v1.Node
	err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node)
	switch at.labels = node.Labels; {
	case apierrors.IsNotFound(err):
		// Kueue has added the labels of the pool's nodes to the pod's node selector.
		at.labels = pod.Spec.NodeSelector
	case err != nil:
		return place{}, fmt.Errorf("get node %s: %w", pod.Spec.NodeName, err)
	}
	var pools v1alpha1.ComputePoolList
	if err := r.client.List(ctx, &pools); err != nil {
		return place{}, fmt.Errorf("list pools: %w", err)
	}
	if at.pool = membership.PoolOf(at.labels, membership.In(&pools)); at.pool != nil {
		at.joined = func() time.Time { return joined(pod, &namespace, &node, at.pool) }
	}
	var topology topologyv1alpha1.NodeGPUTopology
	err = r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &topology)
	if client.IgnoreNotFound(err) != nil {
		return place{}, fmt.Errorf("get NodeGPUTopology %s: %w", pod.Spec.NodeName, err)
	}
	if err == nil {
		at.topology = &topology
	}
	return at, nil
}

// create creates a record. Its name is derived from the pod's UID, so a second one is refused: then the
// cache did not have it yet.
func (r *reconciler) create(ctx context.Context, record *v1alpha1.UsageRecord) (*v1alpha1.UsageRecord, error) {
	err := r.client.Create(ctx, record, client.FieldOwner(names.FieldOwner))
	if err == nil {
		return record, nil
	}
	// A namespace that is being deleted admits no new object, but may have the record.
	goes := apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause)
	if !goes && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make record %s/%s: %w", record.Namespace, record.Name, err)
	}
	var there v1alpha1.UsageRecord
	switch err := r.reader.Get(ctx, client.ObjectKeyFromObject(record), &there); {
	case err == nil:
		return &there, nil
	case goes && apierrors.IsNotFound(err):
		return r.keep(ctx, record)
	default:
		return nil, fmt.Errorf("get record %s/%s: %w", record.Namespace, record.Name, err)
	}
}

// end writes the end of those records that are endable.
func (r *reconciler) end(ctx context.Context, records []v1alpha1.UsageRecord, e end) error {
	for _, i := range endable(records, e) {
		record := &records[i]
		before := record.DeepCopy()
		status := ending(record, e)
		record.Status.End, record.Status.Estimated = status.End, status.Estimated
		if err := r.client.Status().Patch(ctx, record, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); err != nil {
			return fmt.Errorf("end record %s/%s: %w", record.Namespace, record.Name, err)
		}
	}
	return nil
}

// confirm marks a restored record as continuing, for a pod that exists.
func (r *reconciler) confirm(ctx context.Context, record *v1alpha1.UsageRecord) error {
	before := record.DeepCopy()
	record.Annotations[names.AnnotationRecorded] = record.CreationTimestamp.UTC().Format(time.RFC3339)
	if err := r.client.Patch(ctx, record, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("confirm record %s/%s: %w", record.Namespace, record.Name, err)
	}
	return nil
}

// release removes the metering finalizer from the pod. The patch has the UID: another pod may have its
// name by now.
func (r *reconciler) release(ctx context.Context, pod *v1.Pod) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pod.UID, names.FinalizerMetering)
	err := r.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(names.FieldOwner))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("take the finalizer from pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// move removes the finalizer of records that are being deleted, with their namespace for example, once
// the controller's namespace has a copy: they are still to be billed.
func (r *reconciler) move(ctx context.Context, records []v1alpha1.UsageRecord) error {
	for i := range records {
		record := &records[i]
		kept := slices.Contains(record.Finalizers, names.FinalizerBilling)
		said := record.Status.End != nil || accounting.Restored(record)
		if record.DeletionTimestamp == nil || !said || !kept || record.Namespace == r.namespace {
			continue
		}
		if _, err := r.keep(ctx, record); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(record.DeepCopy(), client.MergeFromWithOptimisticLock{})
		record.Finalizers = slices.DeleteFunc(record.Finalizers, func(f string) bool { return f == names.FinalizerBilling })
		if err := r.client.Patch(ctx, record, patch, client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("let record %s/%s go: %w", record.Namespace, record.Name, err)
		}
	}
	return nil
}

// keep creates or completes the copy of a record in the controller's namespace, with its end and bill.
func (r *reconciler) keep(ctx context.Context, record *v1alpha1.UsageRecord) (*v1alpha1.UsageRecord, error) {
	kept := &v1alpha1.UsageRecord{Spec: record.Spec}
	kept.Name, kept.Namespace, kept.Labels, kept.Finalizers = record.Name, r.namespace, record.Labels, []string{names.FinalizerBilling}
	kept.Annotations = record.Annotations
	if err := r.client.Create(ctx, kept, client.FieldOwner(names.FieldOwner)); apierrors.IsAlreadyExists(err) {
		err = r.reader.Get(ctx, client.ObjectKeyFromObject(kept), kept)
		if err != nil {
			return nil, fmt.Errorf("get record %s/%s: %w", kept.Namespace, kept.Name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("keep record %s/%s in %s: %w", record.Namespace, record.Name, r.namespace, err)
	}
	status := keptStatus(kept.Status, record.Status)
	if status == kept.Status {
		return kept, nil
	}
	before := kept.DeepCopy()
	kept.Status = status
	if err := r.client.Status().Patch(ctx, kept, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); err != nil {
		return nil, fmt.Errorf("end record %s/%s: %w", kept.Namespace, kept.Name, err)
	}
	return kept, nil
}

// keptStatus returns the status of the copy of a record. The original may have been priced, or put on an
// invoice, after it was copied: a copy without that would have another price, or be on another invoice.
func keptStatus(kept, record v1alpha1.UsageRecordStatus) v1alpha1.UsageRecordStatus {
	if kept.End == nil {
		return record
	}
	if kept.UnitPrice == "" && record.UnitPrice != "" {
		kept.UnitPrice, kept.BilledSeconds, kept.Cost = record.UnitPrice, record.BilledSeconds, record.Cost
	}
	if kept.Invoice == "" {
		kept.Invoice = record.Invoice
	}
	return kept
}
