// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// takenError reports that an object of another owner has a name that the session needs.
type takenError struct{ what string }

func (e *takenError) Error() string { return e.what + " is there and is not the session's" }

// equip creates the objects that the Job's pod needs, and restores changed or deleted ones. It reads
// before it creates: a quota counts each attempt.
func (r *reconciler) equip(ctx context.Context, v *view) error {
	m := meta(v.session, metav1.NewControllerRef(v.job, batchv1.SchemeGroupVersion.WithKind("Job")))
	if err := r.keepService(ctx, v, service(v.session, m)); err != nil {
		return err
	}
	if err := r.keepPolicy(ctx, v, network(v.session, m)); err != nil {
		return err
	}
	return r.keepSecret(ctx, v, secret(m))
}

// create creates an object. An existing one is checked at the next reconciliation.
func (r *reconciler) create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := r.Create(ctx, o, append(opts, client.FieldOwner(names.FieldOwner))...)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// keepService keeps the Service pointing to the session. A Service that is not the Job's would lead
// clients elsewhere, with their tokens.
func (r *reconciler) keepService(ctx context.Context, v *view, want *v1.Service) error {
	there := &v1.Service{}
	err := r.Get(ctx, client.ObjectKeyFromObject(want), there)
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, want)
	case err != nil:
		return fmt.Errorf("get Service %s/%s: %w", want.Namespace, want.Name, err)
	case !metav1.IsControlledBy(there, v.job):
		return r.taken(v, "Service", there)
	}
	is, should := &there.Spec, &want.Spec
	if maps.Equal(should.Selector, is.Selector) && len(should.Ports) == len(is.Ports) && equality.Semantic.DeepDerivative(should.Ports, is.Ports) &&
		(is.Type == v1.ServiceTypeClusterIP || is.Type == "") && is.ExternalName == "" && len(is.ExternalIPs) == 0 {
		return nil
	}
	before := there.DeepCopy()
	is.Selector, is.Ports, is.Type, is.ExternalName, is.ExternalIPs = should.Selector, should.Ports, v1.ServiceTypeClusterIP, "", nil
	if err := r.Patch(ctx, there, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("restore Service %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// keepPolicy keeps the NetworkPolicy, which lets clients reach only the gate.
func (r *reconciler) keepPolicy(ctx context.Context, v *view, want *networkingv1.NetworkPolicy) error {
	there := &networkingv1.NetworkPolicy{}
	err := r.api.Get(ctx, client.ObjectKeyFromObject(want), there)
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, want)
	case err != nil:
		return fmt.Errorf("get NetworkPolicy %s/%s: %w", want.Namespace, want.Name, err)
	case !metav1.IsControlledBy(there, v.job):
		return r.taken(v, "NetworkPolicy", there)
	case equality.Semantic.DeepEqual(want.Spec, there.Spec):
		return nil
	}
	before := there.DeepCopy()
	there.Spec = want.Spec
	if err := r.Patch(ctx, there, client.MergeFrom(before), client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("restore NetworkPolicy %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// taken returns an error and records an event for an object that is not the session's. One of an earlier
// session of this name is deleted with that session's Job: it is waited for.
func (r *reconciler) taken(v *view, kind string, o client.Object) error {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Name == v.job.Name && owner.UID != v.job.UID {
		return fmt.Errorf("%s %s/%s is still that of an earlier session", kind, o.GetNamespace(), o.GetName())
	}
	err := &takenError{kind + " " + o.GetName()}
	r.events.Event(v.session, v1.EventTypeWarning, eventNameTaken, err.Error())
	return err
}

// keepSecret creates the Secret if it does not exist. An existing one is left unchanged: anyone who may
// create Secrets in the namespace may know its token. A dry run shows whether it exists, since the
// account cannot read Secrets.
func (r *reconciler) keepSecret(ctx context.Context, v *view, want *v1.Secret) error {
	err := r.Create(ctx, want.DeepCopy(), client.DryRunAll, client.FieldOwner(names.FieldOwner))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil && slices.ContainsFunc(v.pods, serves):
		return nil // a full quota refuses the attempt before the API server checks whether the Secret exists
	case err != nil:
		return fmt.Errorf("make Secret %s/%s: %w", want.Namespace, want.Name, err)
	}
	if err := r.create(ctx, want); err != nil {
		return err
	}
	return r.restart(ctx, v)
}

// restart evicts the server's pod, so that a new one starts with the new token. An eviction is not
// counted as a failure of the Job.
func (r *reconciler) restart(ctx context.Context, v *view) error {
	for i := range v.pods {
		pod := &v.pods[i]
		if pod.Status.Phase != v1.PodRunning || pod.DeletionTimestamp != nil {
			continue // it has no token yet, or none any more
		}
		uid := pod.UID
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
		err := r.SubResource("eviction").Create(ctx, pod, eviction)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // it is gone, or its name is another pod's
		}
		then := "its server starts anew"
		if err != nil {
			then = fmt.Sprintf("its server cannot be evicted and takes the new token when kubelet has written it: %v", err)
		}
		r.events.Eventf(v.session, v1.EventTypeWarning, eventTokenReplaced, "Secret %s was deleted: the session has a new token, and %s", Name(v.session.Name), then)
	}
	return nil
}
