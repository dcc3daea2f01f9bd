// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// reconciler makes sessions what they should be.
type reconciler struct {
	client.Client
	// api reads past the cache: Secrets of everybody are not kept in memory, and a session that
	// has ended must not be begun anew because the cache does not know it yet.
	api    client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
	image  string // of the gate
}

// Reconcile looks at one session.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.RemoteGPUSession{}
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // what it owns goes with it
	}
	v, err := r.view(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := decide(v, r.clock.Now())
	if err := r.write(ctx, s, &d); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case d.over:
		err = r.clear(ctx, s, v.job)
	case v.job != nil || d.device != "":
		err = r.ensure(ctx, s, v.job, &d)
	}
	return ctrl.Result{RequeueAfter: d.after}, err
}

// view gathers what concerns a session.
func (r *reconciler) view(ctx context.Context, s *v1alpha1.RemoteGPUSession) (*view, error) {
	v := &view{session: s, image: r.image}
	var namespace v1.Namespace
	if err := r.Get(ctx, client.ObjectKey{Name: s.Namespace}, &namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", s.Namespace, err)
	}
	v.tenant = namespace.Labels[v1alpha1.LabelTenant]
	pool := &v1alpha1.ComputePool{}
	switch err := r.Get(ctx, client.ObjectKey{Name: s.Spec.Pool}, pool); {
	case err == nil:
		v.pool = pool
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read pool %s: %w", s.Spec.Pool, err)
	}
	job := &batchv1.Job{}
	switch err := r.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: Name(s.Name)}, job); {
	case err == nil && metav1.IsControlledBy(job, s):
		v.job = job
	case err == nil:
		v.taken = "job " + job.Name
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read job %s/%s: %w", s.Namespace, Name(s.Name), err)
	}
	var pods v1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabels{names.LabelSession: s.Name}); err != nil {
		return nil, fmt.Errorf("list the pods of session %s/%s: %w", s.Namespace, s.Name, err)
	}
	for i := range pods.Items {
		if v.job != nil && metav1.IsControlledBy(&pods.Items[i], v.job) {
			v.pods = append(v.pods, pods.Items[i])
		}
	}
	return v, nil
}

// ensure makes what of a session is not there. The Job comes last: it is what holds devices.
func (r *reconciler) ensure(ctx context.Context, s *v1alpha1.RemoteGPUSession, have *batchv1.Job, d *decision) error {
	for _, o := range []client.Object{secret(s), service(s), network(s)} {
		if err := r.make(ctx, s, o); err != nil {
			return err
		}
	}
	if have != nil {
		return nil
	}
	now := &v1alpha1.RemoteGPUSession{}
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.UID != s.UID || now.DeletionTimestamp != nil || ended(now) {
		return nil
	}
	return r.make(ctx, s, job(s, d.device, r.image))
}

// make makes an object if it is not there. One of that name that is not the session's is left.
func (r *reconciler) make(ctx context.Context, s *v1alpha1.RemoteGPUSession, o client.Object) error {
	old := &metav1.PartialObjectMetadata{}
	gvk, err := r.GroupVersionKindFor(o)
	if err != nil {
		return fmt.Errorf("name the kind of %T: %w", o, err)
	}
	old.SetGroupVersionKind(gvk)
	err = r.api.Get(ctx, client.ObjectKeyFromObject(o), old)
	switch {
	case err == nil && metav1.IsControlledBy(old, s):
		return nil
	case err == nil:
		r.events.Eventf(s, v1.EventTypeWarning, ReasonNameTaken, "%s %s is there and is not the session's", gvk.Kind, o.GetName())
		return fmt.Errorf("%s %s/%s is there and is not the session's", gvk.Kind, o.GetNamespace(), o.GetName())
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read %s %s/%s: %w", gvk.Kind, o.GetNamespace(), o.GetName(), err)
	}
	if err := r.Create(ctx, o, client.FieldOwner(names.FieldOwner)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %s %s/%s: %w", gvk.Kind, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// clear removes all that a session that has ended has, the Job first, and then writes down that
// nothing is left.
func (r *reconciler) clear(ctx context.Context, s *v1alpha1.RemoteGPUSession, have *batchv1.Job) error {
	if s.Status.TokenSecret == nil && have == nil {
		return nil
	}
	key := metav1.ObjectMeta{Name: Name(s.Name), Namespace: s.Namespace}
	for _, o := range []client.Object{&batchv1.Job{ObjectMeta: key}, &v1.Service{ObjectMeta: key}, &networkingv1.NetworkPolicy{ObjectMeta: key}, &v1.Secret{ObjectMeta: key}} {
		if err := r.remove(ctx, s, o); err != nil {
			return err
		}
	}
	base := s.DeepCopy()
	s.Status.TokenSecret = nil
	return r.patch(ctx, s, base)
}

// remove deletes an object that is the session's.
func (r *reconciler) remove(ctx context.Context, s *v1alpha1.RemoteGPUSession, o client.Object) error {
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(o, s) || o.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := o.GetUID()
	err := r.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// write writes the status, if it differs, before anything is done: what has ended is known to have
// ended before its Job goes.
func (r *reconciler) write(ctx context.Context, s *v1alpha1.RemoteGPUSession, d *decision) error {
	if equality.Semantic.DeepEqual(s.Status, d.status) {
		return nil
	}
	base, before := s.DeepCopy(), s.Status.Phase
	s.Status = d.status
	if err := r.patch(ctx, s, base); err != nil {
		return err
	}
	if phase := d.status.Phase; phase != before {
		r.events.Eventf(s, v1.EventTypeNormal, "Session"+string(phase), "%s", message(s))
	}
	return nil
}

// message is what ConditionReady says.
func message(s *v1alpha1.RemoteGPUSession) string {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Message
		}
	}
	return ""
}

func (r *reconciler) patch(ctx context.Context, s, base *v1alpha1.RemoteGPUSession) error {
	// As it was read: a status by older knowledge must not be written over a newer one.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, s, patch, client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of session %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
