// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

const (
	// evictions is the number of evictions that run at a time, as in kube-scheduler.
	evictions = 16

	// The events: of the first member, and of each victim.
	eventPreempting = "GangPreempting"
	eventPreempted  = "Preempted"
)

// membersRetry is the backoff for evicting the rest of a gang: four minutes in all.
var membersRetry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: .1, Steps: 8}

// order is a list of pods to evict for a gang or a pod.
type order struct {
	kind, by  string  // of the gang or pod; it with its kind
	preemptor *v1.Pod // that pod, or the member that looked for victims
	victims   []*v1.Pod
}

// nameIn returns the gang's or pod's name for messages in a namespace: other namespaces do not see it.
func (o *order) nameIn(namespace string) string {
	if namespace == o.preemptor.Namespace {
		return o.by
	}
	return "a " + o.kind + " of another namespace"
}

// failed is the message to the gang's members that evicting failed. Errors name pods, which members in
// other namespaces must not see.
func (o *order) failed(err error) string {
	if slices.ContainsFunc(o.victims, func(pod *v1.Pod) bool { return pod.Namespace != o.preemptor.Namespace }) {
		return o.by + ": evicting pods for it failed"
	}
	return fmt.Sprintf("%s: evicting pods for it failed: %v", o.by, err)
}

// preempt evicts in the background: a cycle does not wait for the API server. If a pod could not be
// evicted, the gang's held places are given back, and it is planned again.
func (d *doer) preempt(key gangrequest.Key, preemptor *v1.Pod, victims []*v1.Pod) {
	o := &order{kind: "gang", by: key.String(), preemptor: preemptor, victims: victims}
	go func() {
		err := d.leader.Check(d.ctx)
		if err == nil {
			d.handle.EventRecorder().Eventf(o.preemptor, nil, v1.EventTypeNormal, eventPreempting, "Scheduling",
				"%s evicts %s", o.by, eviction.NamesFor(preemptor.Namespace, o.victims))
			err = d.preemptAll(o)
		}
		if err != nil {
			klog.FromContext(d.ctx).Error(err, "Evicting pods for a gang failed", "gang", o.by)
			d.gangs.EndClaim(key, o.failed(err))
		}
	}()
}

// evictMembers evicts, in the background, the members of gangs that are evicted with a pod's victim. No
// later cycle would retry it once that victim is gone, so it retries itself.
func (d *doer) evictMembers(preemptor *v1.Pod, members []*v1.Pod) {
	o := &order{kind: "pod", by: "pod " + preemptor.Namespace + "/" + preemptor.Name, preemptor: preemptor, victims: members}
	go func() {
		var err error
		_ = wait.ExponentialBackoffWithContext(d.ctx, membersRetry, func(context.Context) (bool, error) { // err says more
			err = d.preemptAll(o) //nolint:contextcheck // evictions have the context of the plugin
			return err == nil || errors.Is(err, leader.ErrNotLeader), nil
		})
		if err != nil {
			klog.FromContext(d.ctx).Error(err, "Evicting the rest of a gang failed: it runs on without members that were evicted for a pod", "pod", klog.KObj(preemptor))
		}
	}()
}

// preemptAll evicts all victims of an order. Victims that are gone already cost a request when it is
// called again.
func (d *doer) preemptAll(o *order) error {
	var g errgroup.Group
	g.SetLimit(evictions)
	for _, victim := range o.victims {
		g.Go(func() error { return d.preemptOne(o, victim) })
	}
	return g.Wait()
}

// preemptOne evicts one pod. A pod that waits at Permit is rejected instead; one that is gone already is
// no error.
func (d *doer) preemptOne(o *order, victim *v1.Pod) error {
	if w := d.handle.GetWaitingPod(victim.UID); w != nil {
		w.Reject(Name, "preempted by "+o.nameIn(victim.Namespace))
		return nil
	}
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	if err := d.leader.Check(ctx); err != nil { // a gang may have thousands of victims, one after the other
		return fmt.Errorf("evicting pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return d.mark(ctx, o, victim) })
	if err == nil || apierrors.IsConflict(err) { // the pod changes all the time, or is another one: the result of its deletion decides
		err = d.handle.ClientSet().CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(victim.UID))})
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // a new pod may have its name
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	var related runtime.Object
	if victim.Namespace == o.preemptor.Namespace { // other namespaces do not see the name
		related = o.preemptor
	}
	d.handle.EventRecorder().Eventf(victim, related, v1.EventTypeNormal, eventPreempted, "Preempting",
		"Preempted by %s on node %s", o.nameIn(victim.Namespace), victim.Spec.NodeName)
	return nil
}

// mark writes the reason for the eviction into the pod's conditions, as kube-scheduler does.
func (d *doer) mark(ctx context.Context, o *order, victim *v1.Pod) error {
	var body struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []v1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	body.Metadata.UID = victim.UID
	body.Status.Conditions = []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.NewTime(d.clock.Now()),
		Message: fmt.Sprintf("%s: preempting to accommodate %s, which has a higher priority", o.preemptor.Spec.SchedulerName, o.nameIn(victim.Namespace)),
	}}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = d.handle.ClientSet().CoreV1().Pods(victim.Namespace).Patch(ctx, victim.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return err
}
