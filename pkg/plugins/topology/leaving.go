// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// overdue is how long after the end of its grace period a pod may still be going.
// One that is there for longer has a finalizer or a dead kubelet: to wait for it
// may be to wait for ever.
const overdue = 30 * time.Second

// leaving is a pod that goes without the preemptor's doing.
type leaving struct {
	fwk.PodInfo
	within time.Duration // what is left of its grace period
}

// leavers sorts out who goes of a node anyway, the soonest first: those that do so
// within the time that is reasonable to wait, and slow ones. Of the latter their owners
// chose so long a grace period that others may have to go instead.
func (p *preemptor) leavers(info fwk.NodeInfo, pod *v1.Pod) (soon, slow []leaving) {
	told := p.state.Leaving(info.Node().Name, pod.UID, corev1.PodPriority(pod))
	for _, pi := range info.GetPods() {
		other := pi.GetPod()
		var l leaving
		switch {
		case other.DeletionTimestamp != nil && !p.stuck(other):
			l = leaving{pi, max(0, other.DeletionTimestamp.Sub(p.clock.Now()))}
		case other.DeletionTimestamp == nil && slices.Contains(told, other.UID):
			l = leaving{pi, graceOf(other)}
		default:
			continue
		}
		if l.within <= p.patience {
			soon = append(soon, l)
		} else {
			slow = append(slow, l)
		}
	}
	sooner := func(a, b leaving) int { return cmp.Compare(a.within, b.within) }
	slices.SortStableFunc(soon, sooner)
	slices.SortStableFunc(slow, sooner)
	return soon, slow
}

// stuck reports whether a pod should have ended by now. Nothing can be done about it.
func (p *preemptor) stuck(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && p.clock.Now().After(pod.DeletionTimestamp.Add(overdue))
}

// deserves reports whether a preemptor still waits for a victim of its own, which it
// chose though it may take long: so much of its grace period is it given.
func (p *preemptor) deserves(victim *v1.Pod) bool {
	if victim.DeletionTimestamp == nil || p.stuck(victim) {
		return false
	}
	told := victim.DeletionTimestamp.Add(-graceOf(victim))
	return p.clock.Now().Before(told.Add(p.patience + overdue))
}

// late is how many waits longer than one a pod needs to end, once it is told to go.
func (p *preemptor) late(pod *v1.Pod) int {
	return int((max(1, graceOf(pod)) - 1) / p.patience)
}

// graceOf is the time a pod has to end in.
func graceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds // which who deleted it may have chosen
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(min(max(0, seconds), math.MaxInt32)) * time.Second // 68 years are no overflow
}

// preempted reports whether a scheduler evicted a pod for another one.
func preempted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}
