// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"slices"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Gangs are all gangs of a process. Make them with New.
type Gangs struct {
	Attempts
	Holds
	Diagnosis
	*stepper
	*signals
}

// New returns Gangs without any gang.
func New(clk clock.PassiveClock, config Config, scheduler Scheduler) *Gangs {
	s := newStepper(clk, config, scheduler)
	return &Gangs{Attempts{s}, Holds{s}, Diagnosis{s}, s, s.queue.signals}
}

// Serve registers a profile whose pods may be members. Call it before the first pod comes.
func (g *Gangs) Serve(profile string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.profiles[profile] = true
}

// ChangePod records an existing pod; old is its earlier version, or nil. For a pod that is no member it
// only compares a few keys, without a lock.
func (g *Gangs) ChangePod(old, pod *v1.Pod) {
	_, is := gangrequest.KeyOf(pod)
	if old != nil && !is {
		_, is = gangrequest.KeyOf(old)
	}
	if is {
		g.SetPod(pod)
	}
}

// SetPod records an existing pod, which may have been a member of another gang.
func (g *Gangs) SetPod(pod *v1.Pod) {
	key, ok := gangrequest.KeyOf(pod)
	g.do(func() (*gang, effects) {
		if was := g.queue.byPod[pod.UID]; was != nil && (!ok || was.key != key) {
			return was, g.remove(was, pod.UID, "a member left the gang") // it is added again below
		}
		return nil, effects{}
	})
	if !ok {
		return
	}
	g.do(func() (*gang, effects) {
		x := g.queue.ensure(key)
		old := g.queue.put(x, pod)
		return x, g.follow(x, old, pod)
	})
}

// DeletePod records that a pod does not exist any more; pod is its last known version.
func (g *Gangs) DeletePod(pod *v1.Pod) {
	if _, is := gangrequest.KeyOf(pod); !is {
		return
	}
	g.do(func() (*gang, effects) {
		x := g.queue.byPod[pod.UID]
		if x == nil {
			return nil, effects{}
		}
		return x, g.remove(x, pod.UID, "a member was deleted")
	})
}

// SetGroup records a PodGroup.
func (g *Gangs) SetGroup(group *schedulingv1alpha1.PodGroup) {
	g.changeGroup(gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: group.Namespace, Name: group.Name}, group)
}

// Groups returns all PodGroups. They must not be changed.
func (g *Gangs) Groups() []*schedulingv1alpha1.PodGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.queue.groups))
}

// DeleteGroup records that a PodGroup does not exist any more.
func (g *Gangs) DeleteGroup(group *schedulingv1alpha1.PodGroup) {
	g.changeGroup(gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: group.Namespace, Name: group.Name}, nil)
}

func (g *Gangs) changeGroup(key gangrequest.Key, group *schedulingv1alpha1.PodGroup) {
	g.do(func() (*gang, effects) {
		x := g.queue.putGroup(key, group)
		if x == nil {
			return nil, effects{}
		}
		if x.attempt.collects() || x.claim != nil {
			return x, x.giveUp("the PodGroup asks for something else now")
		}
		g.queue.again(x)
		return x, effects{activate: g.queue.next(x)}
	})
}

// SetEnded records a pod that succeeded or failed. It is part of its gang according to gangrequest, and
// stays known regardless of SetPod and DeletePod: kube-scheduler's informer drops such a pod, and may be
// behind.
func (g *Gangs) SetEnded(pod *v1.Pod) {
	if key, ok := gangrequest.KeyOf(pod); ok {
		g.changeEnded(key, func(pods map[types.UID]*v1.Pod) { pods[pod.UID] = pod })
	}
}

// DeleteEnded records that a finished pod does not exist any more.
func (g *Gangs) DeleteEnded(pod *v1.Pod) {
	if key, ok := gangrequest.KeyOf(pod); ok {
		g.changeEnded(key, func(pods map[types.UID]*v1.Pod) { delete(pods, pod.UID) })
	}
}

// changeEnded applies a change of the finished pods, and has the gang read again if it has other pods.
func (g *Gangs) changeEnded(key gangrequest.Key, change func(map[types.UID]*v1.Pod)) {
	g.do(func() (*gang, effects) {
		x := g.queue.changeEnded(key, change)
		if x == nil {
			return nil, effects{}
		}
		g.queue.again(x)
		return x, effects{activate: g.queue.next(x)}
	})
}

// Gate returns why a pod is kept out of the scheduling queue; "" if it is not. It is called under the
// queue's lock.
func (g *Gangs) Gate(pod *v1.Pod) string {
	key, ok := gangrequest.KeyOf(pod)
	if !ok {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.gangs[key]
	if x == nil || x.pods[pod.UID] == nil {
		return "gang: the pod is not known yet"
	}
	return g.queue.gate(x, pod.UID, true)
}
