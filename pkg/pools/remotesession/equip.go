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

// takenError is that a name which the session needs is another object's.
type takenError struct{ what string }

func (e *takenError) Error() string { return e.what + " is there and is not the session's" }

// equip makes what the Job's pod needs, and restores what somebody has changed or deleted of it. It asks
// before it makes anything: a quota counts each try.
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

// create makes an object. One that is there by now is looked at the next time.
func (r *reconciler) create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	err := r.Create(ctx, o, append(opts, client.FieldOwner(names.FieldOwner))...)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// keepService has the Service lead to the session. One that is not the Job's would lead clients elsewhere,
// with their tokens.
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

// keepPolicy has the NetworkPolicy let clients in to the gate alone.
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

// taken warns of an object that is not the session's. One of an earlier session of this name goes with the
// Job of that: it is waited for.
func (r *reconciler) taken(v *view, kind string, o client.Object) error {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Name == v.job.Name && owner.UID != v.job.UID {
		return fmt.Errorf("%s %s/%s is still that of an earlier session", kind, o.GetNamespace(), o.GetName())
	}
	err := &takenError{kind + " " + o.GetName()}
	r.events.Event(v.session, v1.EventTypeWarning, eventNameTaken, err.Error())
	return err
}

// keepSecret makes the Secret where there is none. One that exists is left as it is: whoever may make Secrets
// in the namespace may know its token. A dry run tells whether it exists, since the account reads no Secrets.
func (r *reconciler) keepSecret(ctx context.Context, v *view, want *v1.Secret) error {
	err := r.Create(ctx, want.DeepCopy(), client.DryRunAll, client.FieldOwner(names.FieldOwner))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil && slices.ContainsFunc(v.pods, serves):
		return nil // a full quota refuses the try before anybody looks whether the Secret is there
	case err != nil:
		return fmt.Errorf("make Secret %s/%s: %w", want.Namespace, want.Name, err)
	}
	if err := r.create(ctx, want); err != nil {
		return err
	}
	return r.restart(ctx, v)
}

// restart evicts the server's pod, so that a new one starts with the new token. An eviction does not count
// as a failure of the Job.
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
