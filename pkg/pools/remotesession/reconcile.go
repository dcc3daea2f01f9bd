// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"errors"
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

// reconciler brings sessions and their objects to their wanted state.
type reconciler struct {
	client.Client
	// api reads past the cache: a session that has ended must not be started again because the cache
	// does not show it yet.
	api    client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
	image  string // of the gate
}

// Reconcile brings one session to its wanted state.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.RemoteGPUSession{}
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // the objects that it owns are deleted with it
	}
	v, err := r.view(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := decide(v, r.clock.Now())
	failed := r.said(ctx, v, &d, r.provide(ctx, v, &d))
	if err := r.write(ctx, s, &d); err != nil {
		return ctrl.Result{}, err
	}
	if d.over {
		failed = r.end(ctx, v.job)
	}
	return ctrl.Result{RequeueAfter: d.after}, failed
}

// said writes into the decision why something could not be provided. It returns errors that a retry may
// resolve; for a ready session it logs them instead, so that its end is not noticed late.
func (r *reconciler) said(ctx context.Context, v *view, d *decision, failed error) error {
	s := v.session
	what := "what session " + s.Namespace + "/" + s.Name + " needs"
	if d.device != "" {
		what = "Job " + s.Namespace + "/" + Name(s.Name)
	}
	refused := refusal.Of(failed, what)
	serves := d.status.Phase == v1alpha1.SessionReady
	var taken *takenError
	switch {
	case failed == nil:
		return nil
	case errors.As(failed, &taken):
		d.status.Endpoint = "" // it would lead elsewhere
		d.pending(ReasonNameTaken, taken.Error())
	case refused != "" && serves:
		r.events.Event(s, v1.EventTypeWarning, refusal.EventRefused, refused)
	case refused != "":
		d.pending(refusal.Reason, refused)
	case serves:
		ctrl.LoggerFrom(ctx).Error(failed, "A session is not repaired", "session", s.Namespace+"/"+s.Name)
	default:
		return failed
	}
	d.lookAfter(refusal.Again)
	return nil
}

// provide creates the objects that a session needs which has not ended.
func (r *reconciler) provide(ctx context.Context, v *view, d *decision) error {
	switch {
	case d.over:
		return nil
	case d.device != "":
		return r.begin(ctx, v.session, d.device)
	case v.job != nil:
		return r.equip(ctx, v)
	}
	return nil
}

// view reads the observed state of a session.
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

// begin creates the Job, suspended, unless the session has ended in the meantime. It runs before the
// status is written, which reports a refusal.
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

// end stops the Job of a session that has ended, and then deletes it. Kueue gives the quota of a deleted
// or suspended Job to others at once, while its pod still holds the devices; it keeps the quota of a Job
// that has not ended, and a Job ends only once its pod is gone.
func (r *reconciler) end(ctx context.Context, job *batchv1.Job) error {
	if job == nil || job.DeletionTimestamp != nil {
		return nil
	}
	if holdsQuota(job) {
		return r.stop(ctx, job)
	}
	// In the version that was read: it may have been given quota since. Then the event of that change
	// reconciles it again.
	err := r.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// stop makes the Job controller delete the pod, create no other, and mark the Job as failed once the pod
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

// write writes the status, if it differs. The end of a session is recorded before its Job is deleted.
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

// isRefused reports whether the API server refuses an object of the session.
func isRefused(s *v1alpha1.RemoteGPUSession) bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Reason == refusal.Reason
	})
}

// message returns the message of ConditionReady.
func message(s *v1alpha1.RemoteGPUSession) string {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Message
		}
	}
	return ""
}

func (r *reconciler) patch(ctx context.Context, s, base *v1alpha1.RemoteGPUSession) error {
	// In the version that was read: an outdated status must not overwrite a newer one.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, s, patch, client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of session %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
