// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

const (
	// eventWaiting is the reason of the event on a gang that does not go on.
	eventWaiting = "GangWaiting"
	// saidPerSecond and saidAtOnce bound the writes of reasons of all gangs together: far fewer than an API
	// server binds, since they are not urgent.
	saidPerSecond = 50
	saidAtOnce    = 100
)

// sayings is the queue of reasons to be written on the members of waiting gangs. The gangs take turns, one
// member each. A later reason of a gang replaces the earlier one.
type sayings struct {
	wake chan struct{}

	mu    sync.Mutex
	turns []gangrequest.Key           // guarded by mu
	of    map[gangrequest.Key]*saying // guarded by mu; those in turns
}

// saying is a reason, and the members it is to be written on.
type saying struct {
	pods []*v1.Pod
	why  string
}

func newSayings() *sayings {
	return &sayings{wake: make(chan struct{}, 1), of: map[gangrequest.Key]*saying{}}
}

// put queues a reason for the members. Those that did not get the previous reason yet come first: else a
// gang whose reason changes often would never reach its last ones.
func (s *sayings) put(key gangrequest.Key, pods []*v1.Pod, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &saying{pods: pods, why: why}
	if old := s.of[key]; old == nil {
		s.turns = append(s.turns, key)
	} else {
		left := make(map[types.UID]bool, len(old.pods))
		for _, pod := range old.pods {
			left[pod.UID] = true
		}
		first, later := []*v1.Pod(nil), []*v1.Pod(nil)
		for _, pod := range pods {
			if left[pod.UID] {
				first = append(first, pod)
			} else {
				later = append(later, pod)
			}
		}
		next.pods = slices.Concat(first, later)
	}
	s.of[key] = next
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take removes the next member from the queue and returns it.
func (s *sayings) take() (key gangrequest.Key, pod *v1.Pod, why string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.turns) > 0 {
		key, s.turns = s.turns[0], s.turns[1:]
		x := s.of[key]
		if len(x.pods) == 0 {
			delete(s.of, key)
			continue
		}
		pod, why, x.pods = x.pods[0], x.why, x.pods[1:]
		s.turns = append(s.turns, key)
		return key, pod, why, true
	}
	return key, nil, "", false
}

// forget drops a gang's queued reasons.
func (s *sayings) forget(key gangrequest.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.of[key]; x != nil {
		x.pods = nil
	}
}

// Say queues the reason for every member: autoscalers look for pods whose condition is unschedulable, and
// people look at the events of any of them.
func (d *doer) Say(key gangrequest.Key, pods []*v1.Pod, why string) { d.sayings.put(key, pods, why) }

// runSayings writes one queued reason after the other until ctx ends.
func (d *doer) runSayings(ctx context.Context, limit flowcontrol.RateLimiter) {
	for {
		key, pod, why, ok := d.sayings.take()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-d.sayings.wake:
			}
			continue
		}
		if !d.leader.MayLead() || !d.gangs.Stuck(key) { // the leader writes it, or the gang waits no longer
			d.sayings.forget(key)
			continue
		}
		if limit.Wait(ctx) != nil {
			return
		}
		d.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventWaiting, "Scheduling", "%s", why)
		if gangstate.Says(pod, why) { // kube-scheduler wrote it after the member's cycle
			continue
		}
		err := d.say(ctx, pod, why)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or changed: it may be bound
			klog.FromContext(ctx).Error(err, "Telling a gang why it waits failed", "gang", key.String(), "pod", klog.KObj(pod))
		}
	}
}

func (d *doer) say(ctx context.Context, pod *v1.Pod, why string) error {
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"` // no reason is written on a pod that was bound meanwhile
		} `json:"metadata"`
		Status struct {
			Conditions []v1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	body.Metadata.UID, body.Metadata.ResourceVersion = pod.UID, pod.ResourceVersion
	body.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: why,
		LastTransitionTime: metav1.NewTime(d.clock.Now()),
	}}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	end, err := d.binder.BeginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := d.binder.Bounded(ctx)
	defer cancel()
	_, err = d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return err
}
