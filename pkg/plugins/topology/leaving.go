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

// overdue is how long after the end of its grace period a pod may still exist before it
// counts as stuck. Such a pod has a finalizer or a dead kubelet, and might never end.
const overdue = 30 * time.Second

// leaving is a pod that leaves its node anyway, without a new eviction.
type leaving struct {
	fwk.PodInfo
	within time.Duration // what is left of its grace period
}

// leavers returns the pods that leave the node anyway, the soonest first. soon are
// those that leave within a time that is reasonable to wait. slow are the others: their
// owners chose such a long grace period that other pods may have to go instead.
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

// deserves reports whether a preemptor still waits for its own victim, which it chose
// although the victim may take long. It waits for patience plus overdue after the
// victim was told to go.
func (p *preemptor) deserves(victim *v1.Pod) bool {
	if victim.DeletionTimestamp == nil || p.stuck(victim) {
		return false
	}
	told := victim.DeletionTimestamp.Add(-graceOf(victim))
	return p.clock.Now().Before(told.Add(p.patience + overdue))
}

// late is how many more waits of the length of patience a pod needs to end, after it is
// told to go.
func (p *preemptor) late(pod *v1.Pod) int {
	return int((max(1, graceOf(pod)) - 1) / p.patience)
}

// graceOf is the time in which a pod has to end.
func graceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds // the request that deleted the pod may have set it
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(min(max(0, seconds), math.MaxInt32)) * time.Second // at most 68 years, so that nothing overflows
}

// preempted reports whether a scheduler evicted a pod for another one.
func preempted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}
