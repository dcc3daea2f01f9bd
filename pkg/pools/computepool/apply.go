// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// statusOwner is the field owner of this controller's status fields. Other controllers write their
// conditions under field owners of their own.
const statusOwner = names.FieldOwner + "-computepool"

// foreignError reports that the name of an object to be created is taken by one without the pool's
// label.
type foreignError struct{ object, label string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s is there without the label %s=%s and is left as it is: give the pool another name, delete the object, or set the label to hand it over",
		e.object, names.LabelManaged, e.label)
}

// isForeign reports whether err consists only of foreignErrors.
func isForeign(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(several.Unwrap(), func(e error) bool { return !isForeign(e) })
	}
	foreign := (*foreignError)(nil)
	return errors.As(err, &foreign)
}

// write creates, patches or deletes an object. It leaves an existing object without the pool's label
// unchanged and returns a foreignError.
func (r *reconciler) write(ctx context.Context, w Write) error {
	switch {
	case w.Delete:
		uid := w.Object.GetUID()
		if err := r.client.Delete(ctx, w.Object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", named(w.Object), err)
		}
		return nil
	case w.Over != nil:
		return r.change(ctx, w.Over, w.Object)
	}
	err := r.client.Create(ctx, w.Object, client.FieldOwner(names.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("make %s: %w", named(w.Object), err)
		}
		return nil
	}
	there, _ := w.Object.DeepCopyObject().(client.Object)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(w.Object), there); err != nil {
		return fmt.Errorf("get %s, which is there already: %w", named(w.Object), err)
	}
	if label := w.Object.GetLabels()[names.LabelManaged]; there.GetLabels()[names.LabelManaged] != label {
		return &foreignError{object: named(w.Object), label: label}
	}
	return r.change(ctx, there, w.Object)
}

// change patches labels and spec of an existing object of the pool to those of wanted. The patch carries
// the UID that was read, so the API server refuses it if the object was deleted and recreated under its
// name.
func (r *reconciler) change(ctx context.Context, there, wanted client.Object) error {
	before, _ := there.DeepCopyObject().(client.Object)
	after, _ := there.DeepCopyObject().(client.Object)
	after.SetLabels(labels.Merge(there.GetLabels(), wanted.GetLabels()))
	setSpec(after, wanted)
	before.SetUID("") // so that the patch carries the UID
	if err := r.client.Patch(ctx, after, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("change %s: %w", named(wanted), err)
	}
	return nil
}

// writeEach carries out all writes, also after one fails, and joins their errors.
func (r *reconciler) writeEach(ctx context.Context, writes []Write) error {
	var errs []error
	for _, w := range writes {
		errs = append(errs, r.write(ctx, w))
	}
	return errors.Join(errs...)
}

// eventProtected is the reason of the event on a non-preemptible job when it is released to Kueue.
const eventProtected = "ProtectedCapacityGranted"

// release removes this controller's gate from the jobs of requests, so that Kueue admits them.
func (r *reconciler) release(ctx context.Context, jobs []*batchv1.Job, requests []Request) error {
	var errs []error
	for _, request := range requests {
		i := slices.IndexFunc(jobs, func(j *batchv1.Job) bool { return j.Namespace+"/"+j.Name == request.Job })
		if i < 0 {
			continue
		}
		if err := r.removeGate(ctx, jobs[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		r.events.Eventf(jobs[i], v1.EventTypeNormal, eventProtected,
			"ClusterQueue %s has quota of its own for this job", request.Queue)
	}
	return errors.Join(errs...)
}

// tell writes on jobs the annotation with the reason why they wait.
func (r *reconciler) tell(ctx context.Context, told []Told) error {
	var errs []error
	for _, t := range told {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": t.Job.UID, "annotations": map[string]any{names.AnnotationProtection: t.Why.String()},
		}})
		if err != nil {
			errs = append(errs, fmt.Errorf("encode a patch: %w", err))
			continue
		}
		target := &batchv1.Job{}
		target.Namespace, target.Name = t.Job.Namespace, t.Job.Name
		err = r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("tell job %s/%s why it waits: %w", t.Job.Namespace, t.Job.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeGate removes this controller's gate from a job, and keeps those of other controllers.
func (r *reconciler) removeGate(ctx context.Context, job *batchv1.Job) error {
	var value any
	if left := slices.DeleteFunc(gates(job), func(g string) bool { return g == names.GateProtected }); len(left) > 0 {
		value = strings.Join(left, ",")
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": job.UID, "resourceVersion": job.ResourceVersion,
		"annotations": map[string]any{kueue.AnnotationAdmissionGatedBy: value, names.AnnotationProtection: nil},
	}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &batchv1.Job{}
	target.Namespace, target.Name = job.Namespace, job.Name
	err = r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("let job %s/%s in: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// setFinalizer adds or removes the pool's finalizer.
func (r *reconciler) setFinalizer(ctx context.Context, pool *v1alpha1.ComputePool, wanted bool) error {
	if slices.Contains(pool.Finalizers, names.FinalizerPool) == wanted {
		return nil
	}
	after := pool.DeepCopy()
	after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool { return f == names.FinalizerPool })
	if wanted {
		after.Finalizers = append(after.Finalizers, names.FinalizerPool)
	}
	err := r.client.Patch(ctx, after, client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{}), client.FieldOwner(names.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set the finalizer of ComputePool %s: %w", pool.Name, err)
	}
	return nil
}

// writeStatus applies the pool's status if it differs. Only the conditions that this controller owns are
// applied.
func (r *reconciler) writeStatus(ctx context.Context, pool *v1alpha1.ComputePool, status *v1alpha1.ComputePoolStatus) error {
	if equality.Semantic.DeepEqual(pool.Status, *status) {
		return nil
	}
	own := status.DeepCopy()
	own.Conditions = ownConditions(own.Conditions)
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.ComputePoolKind,
		"metadata": map[string]any{"name": pool.Name, "uid": pool.UID}, "status": own,
	})
	if err != nil {
		return fmt.Errorf("encode the status of ComputePool %s: %w", pool.Name, err)
	}
	target := &v1alpha1.ComputePool{}
	target.Name = pool.Name
	err = r.client.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), client.FieldOwner(statusOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of ComputePool %s: %w", pool.Name, err)
	}
	return nil
}
