// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// errStop ends the steps of a round whose obstacle is in the findings.
var errStop = errors.New("an obstacle was found")

// carryOut carries out steps in order, and stops at the first that fails. Obstacles that people have to
// remove go into f; the returned error is one that a retry may resolve.
func (r *reconciler) carryOut(ctx context.Context, ej *v1alpha1.ElasticJob, rendered *Rendered, steps []step, f *findings) error {
	for i := range steps {
		err := r.carryOutOne(ctx, ej, rendered, &steps[i], f)
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) carryOutOne(ctx context.Context, ej *v1alpha1.ElasticJob, rendered *Rendered, s *step, f *findings) error {
	switch {
	case s.serve != nil:
		return r.make(ctx, ej, s.serve.DeepCopy(), serviceMetadata(), "Service", f)
	case s.create != nil:
		if err := r.mayRun(ctx, ej); err != nil {
			return err
		}
		if err := r.ensureClasses(ctx, rendered.Classes); err != nil {
			return err
		}
		return r.make(ctx, ej, s.create.DeepCopy(), &batchv1.Job{}, "Job", f)
	case s.remove != nil:
		return r.remove(ctx, s.remove)
	case s.activate != nil:
		return r.setActive(ctx, s.activate, true)
	case s.deactivate != nil:
		return r.setActive(ctx, s.deactivate, false)
	}
	if err := r.ensureClasses(ctx, rendered.Classes); err != nil {
		return err
	}
	return r.relabel(ctx, s.relabel, s.labels)
}

// mayRun reads from the API server whether the ElasticJob may still run: a late cache shows an ended job
// as one whose Job is missing, and it would run a second time.
func (r *reconciler) mayRun(ctx context.Context, ej *v1alpha1.ElasticJob) error {
	u := newObject()
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(ej), u); apierrors.IsNotFound(err) {
		return errStop
	} else if err != nil {
		return fmt.Errorf("get ElasticJob %s/%s: %w", ej.Namespace, ej.Name, err)
	}
	now, _, err := decode(u)
	if err != nil {
		return err
	}
	if now.UID != ej.UID || now.DeletionTimestamp != nil || now.Spec.Suspend || ended(now) {
		return errStop // its watch event is on the way
	}
	return nil
}

// make creates an object of the job's. An existing object of that name is an obstacle unless the job
// controls it; the cache may not have shown it.
func (r *reconciler) make(ctx context.Context, ej *v1alpha1.ElasticJob, object, existing client.Object, kind string, f *findings) error {
	err := r.client.Create(ctx, object)
	switch {
	case apierrors.IsInvalid(err):
		f.faults = append(f.faults, fmt.Sprintf("the API server refuses %s %s: %v", kind, object.GetName(), err))
		return errStop
	case apierrors.IsAlreadyExists(err):
		key := client.ObjectKeyFromObject(object)
		if err := r.client.Get(ctx, key, existing); err != nil {
			return fmt.Errorf("read %s %s: %w", kind, key, err)
		}
		if !metav1.IsControlledBy(existing, ej) {
			f.taken = kind + " " + key.String()
			return errStop
		}
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return errStop
	case err != nil:
		if f.refused = refusal.Of(err, fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())); f.refused != "" {
			return errStop
		}
		return fmt.Errorf("make %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// remove deletes a Job and, a moment later, its pods.
func (r *reconciler) remove(ctx context.Context, job *batchv1.Job) error {
	uid := job.UID
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// setActive activates a Workload, or deactivates it so that Kueue evicts it. It is activated only in the
// version that was read: Kueue may stop it for good meanwhile.
func (r *reconciler) setActive(ctx context.Context, w *kueue.Workload, active bool) error {
	metadata := map[string]any{"uid": w.UID, "annotations": map[string]any{names.AnnotationDeactivated: "true"}}
	if active {
		metadata = map[string]any{"resourceVersion": w.ResourceVersion, "annotations": map[string]any{names.AnnotationDeactivated: nil}}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"active": active}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace}}
	err = r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("set spec.active of Workload %s/%s to %t: %w", w.Namespace, w.Name, active, err)
	}
	return nil
}

// relabel patches labels of a Job; an empty value removes the label.
func (r *reconciler) relabel(ctx context.Context, job *batchv1.Job, labels map[string]string) error {
	values := map[string]*string{}
	for key, value := range labels {
		values[key] = nil
		if value != "" {
			values[key] = &value
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": values}})
	if err != nil {
		return fmt.Errorf("label Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	target := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
	err = r.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(names.FieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// ensureClasses creates the missing WorkloadPriorityClasses. Their value never changes.
func (r *reconciler) ensureClasses(ctx context.Context, classes []Class) error {
	for _, class := range classes {
		found := &kueue.WorkloadPriorityClass{}
		err := r.client.Get(ctx, types.NamespacedName{Name: class.Name}, found)
		switch {
		case apierrors.IsNotFound(err):
			made := &kueue.WorkloadPriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: class.Name}, Value: class.Value, Description: "made by nvtopo-pool-controller",
			}
			if err := r.client.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("make WorkloadPriorityClass %s: %w", class.Name, err)
			}
		case err != nil:
			return fmt.Errorf("read WorkloadPriorityClass %s: %w", class.Name, err)
		case found.Value != class.Value:
			return fmt.Errorf("WorkloadPriorityClass %s has the value %d, want %d: delete it", class.Name, found.Value, class.Value)
		}
	}
	return nil
}
