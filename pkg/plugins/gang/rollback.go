// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

const (
	// eventRolledBack is the reason of the events on a gang that was never whole and on its bound members,
	// which are evicted.
	eventRolledBack = "GangRolledBack"
	// eventNotRolledBack is the reason of the event on such a gang if members could not be evicted.
	eventNotRolledBack = "GangNotRolledBack"
	evicting           = "Evicting"
)

// Settle reads a gang from the API server itself, and rolls it back or records that it is whole.
func (d *doer) Settle(s *gangstate.Settlement) {
	go func() {
		evicted, err := d.settle(s)
		d.gangs.Settled(s, evicted)
		if err != nil {
			klog.FromContext(d.ctx).Error(err, "Settling a gang that is not whole failed; it is tried again", "gang", s.Key.String())
		}
	}()
}

// settle returns the number of evicted members.
func (d *doer) settle(s *gangstate.Settlement) (evicted int, err error) {
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	group, pods, err := d.now(ctx, s)
	if err != nil {
		return 0, err
	}
	verdict := d.gangs.Judge(s, group, pods)
	switch {
	case verdict.Whole:
		return 0, d.annotateGroup(group, func(now *schedulingv1alpha1.PodGroup) (map[string]string, error) {
			if !sameAttempt(group, now) {
				return nil, nil
			}
			return wholeNotes(now), nil
		})
	case len(verdict.Evict) > 0:
		return d.rollBack(group, verdict.Evict)
	}
	klog.FromContext(d.ctx).V(2).Info("Nothing is to be done about a gang", "gang", s.Key.String(), "reason", verdict.Reason)
	return 0, nil
}

// sameAttempt reports whether a PodGroup is still in the attempt in which it was read, with the same
// number of members: the decision, made from the pods that were read after it, is then still valid. Its
// labels and status change all the time.
func sameAttempt(read, now *schedulingv1alpha1.PodGroup) bool {
	before, known := gangrequest.StateOf(read)
	state, still := gangrequest.StateOf(now)
	return known && still && state == before && now.Spec.MinMember == read.Spec.MinMember
}

// now reads a PodGroup and its pods from the API server's store. The group is read first: if its state is
// not whole, all members bound by then are among the pods.
func (d *doer) now(ctx context.Context, s *gangstate.Settlement) (*schedulingv1alpha1.PodGroup, []*v1.Pod, error) {
	client, err := d.groups()
	if err != nil {
		return nil, nil, err
	}
	group, err := client.SchedulingV1alpha1().PodGroups(s.Key.Namespace).Get(ctx, s.Key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading PodGroup %s/%s: %w", s.Key.Namespace, s.Key.Name, err)
	}
	list, err := d.handle.ClientSet().CoreV1().Pods(s.Key.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{schedulingv1alpha1.PodGroupLabel: s.Key.Name}.String(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the pods of PodGroup %s/%s: %w", s.Key.Namespace, s.Key.Name, err)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return group, pods, nil
}

// rollBack evicts members. Those that cannot be evicted, such as those whose disruption budget refuses,
// stay for now: an event on the gang reports it, since its owner can fix it, and the gang is checked
// again.
func (d *doer) rollBack(group *schedulingv1alpha1.PodGroup, pods []*v1.Pod) (evicted int, err error) {
	group = group.DeepCopy()
	group.SetGroupVersionKind(schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup")) // an event needs it to name the object
	why := fmt.Sprintf("the gang was never whole, and %d of its members are bound while the others found no place within the time", len(pods))
	evicted, err = evictEach(pods, func(pod *v1.Pod) error {
		err := d.evict(pod)
		if err == nil {
			d.handle.EventRecorder().Eventf(pod, group, v1.EventTypeWarning, eventRolledBack, evicting, "evicted: %s", why)
		}
		return err
	})
	if evicted > 0 {
		d.handle.EventRecorder().Eventf(group, nil, v1.EventTypeWarning, eventRolledBack, evicting, "%d members are evicted: %s", evicted, why)
	}
	if apierrors.IsTooManyRequests(err) {
		d.handle.EventRecorder().Eventf(group, nil, v1.EventTypeWarning, eventNotRolledBack, evicting,
			"%d of %d members are evicted, the others are tried again: %v", evicted, len(pods), err)
	}
	return evicted, err
}

// evictEach evicts one pod after the other. One that cannot be evicted does not stop the others: a gang
// that is half evicted is of no use. It ends early only where the next one would fail the same way:
// another process leads, or the API server does not answer in time.
func evictEach(pods []*v1.Pod, evict func(*v1.Pod) error) (evicted int, failed error) {
	for _, pod := range pods {
		switch err := evict(pod); {
		case err == nil:
			evicted++
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another pod has its name
		case errors.Is(err, leader.ErrNotLeader), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return evicted, err
		default:
			failed = cmp.Or(failed, err)
		}
	}
	return evicted, failed
}

// evict requests the eviction of one member, if this process still leads. It may run before its first
// cycle: the check must not take the identity of another process of this host for its own.
func (d *doer) evict(pod *v1.Pod) error {
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	if !d.leader.MayLead() {
		return leader.ErrNotLeader
	}
	err := d.handle.ClientSet().CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	if err != nil {
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
