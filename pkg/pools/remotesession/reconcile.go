// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// reconciler makes sessions what they should be.
type reconciler struct {
	client.Client
	// api reads past the cache: a session that has ended must not be begun anew because the cache
	// does not know it yet.
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
	if d.device != "" {
		if err := r.begin(ctx, s, d.device); err != nil {
			why := refusal.Of(err, "Job "+s.Namespace+"/"+Name(s.Name))
			if why == "" {
				return ctrl.Result{}, err
			}
			d.pending(refusal.Reason, why)
			d.after = refusal.Again
		}
	}
	if err := r.write(ctx, s, &d); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case d.over:
		err = r.end(ctx, v.job)
	case v.job != nil && s.Status.Phase != v1alpha1.SessionReady:
		err = r.equip(ctx, s, v.job)
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

// begin makes the Job, suspended, unless the session has ended in the meantime. It comes before the
// status is written, which says what was refused.
func (r *reconciler) begin(ctx context.Context, s *v1alpha1.RemoteGPUSession, device v1.ResourceName) error {
	now := &v1alpha1.RemoteGPUSession{}
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(s), now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.UID != s.UID || now.DeletionTimestamp != nil || ended(now) {
		return nil
	}
	err := r.Create(ctx, job(s, device, r.image), client.FieldOwner(names.FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the job of session %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// equip makes what the Job's pod needs. A Secret that is there already is left as it is, and is not
// read: whoever may make Secrets in the namespace may know its token.
func (r *reconciler) equip(ctx context.Context, s *v1alpha1.RemoteGPUSession, job *batchv1.Job) error {
	for _, o := range beside(s, job) {
		switch err := r.Create(ctx, o, client.FieldOwner(names.FieldOwner)); {
		case apierrors.IsAlreadyExists(err):
			if err := r.mine(ctx, s, o, job); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("make %T %s/%s: %w", o, s.Namespace, o.GetName(), err)
		}
	}
	return nil
}

// mine is an error if a Service is there that is not the Job's: it would lead clients elsewhere,
// with their tokens.
func (r *reconciler) mine(ctx context.Context, s *v1alpha1.RemoteGPUSession, o client.Object, job *batchv1.Job) error {
	if _, ok := o.(*v1.Service); !ok {
		return nil
	}
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	if metav1.IsControlledBy(o, job) {
		return nil
	}
	r.events.Eventf(s, v1.EventTypeWarning, eventNameTaken, "Service %s is there and is not the session's", o.GetName())
	return fmt.Errorf("service %s/%s is there and is not the session's", o.GetNamespace(), o.GetName())
}

// end brings the Job of a session that has ended to its end, and deletes it then. Kueue gives the
// quota of a Job that is deleted, or suspended, to others at once, while its pod still holds the
// devices; it keeps that of a Job that has not ended, and that ends only once its pod is gone.
func (r *reconciler) end(ctx context.Context, job *batchv1.Job) error {
	if job == nil || job.DeletionTimestamp != nil {
		return nil
	}
	if holdsQuota(job) {
		return r.stop(ctx, job)
	}
	// As it was read: it may have been given quota since. Then it is looked at again when that is
	// heard of.
	err := r.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// stop has the Job controller delete the pod, make no other, and call the Job failed once the pod
// has ended.
func (r *reconciler) stop(ctx context.Context, job *batchv1.Job) error {
	if d := job.Spec.ActiveDeadlineSeconds; d != nil && *d == endNow {
		return nil
	}
	stopped := job.DeepCopy()
	stopped.Spec.ActiveDeadlineSeconds = new(int64(endNow))
	if err := r.Patch(ctx, stopped, client.MergeFrom(job), client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stop job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// write writes the status, if it differs, before anything is done: what has ended is known to have
// ended before its Job goes.
func (r *reconciler) write(ctx context.Context, s *v1alpha1.RemoteGPUSession, d *decision) error {
	if equality.Semantic.DeepEqual(s.Status, d.status) {
		return nil
	}
	base, before, refused := s.DeepCopy(), s.Status.Phase, isRefused(s)
	s.Status = d.status
	if err := r.patch(ctx, s, base); err != nil {
		return err
	}
	if isRefused(s) && !refused {
		r.events.Eventf(s, v1.EventTypeWarning, refusal.EventRefused, "%s", message(s))
	}
	if phase := d.status.Phase; phase != before {
		r.events.Eventf(s, v1.EventTypeNormal, eventOf(phase), "%s", message(s))
	}
	return nil
}

// isRefused says that the API server refuses what the session needs.
func isRefused(s *v1alpha1.RemoteGPUSession) bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Reason == refusal.Reason
	})
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
