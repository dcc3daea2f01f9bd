// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startOf returns the time since which a pod holds its devices: its binding, by the API server's clock.
// It is not before the devices were its tenant's, and not in the future.
func startOf(pod *v1.Pod, joined, now time.Time) time.Time {
	return earlier(later(boundAt(pod), joined), now)
}

// boundAt returns the time of a pod's binding. The API server writes it with the binding; a scheduler
// that had no answer to its binding overwrites the condition with "not scheduled". Then the pod was
// bound before that, and before its kubelet started it.
func boundAt(pod *v1.Pod) time.Time {
	c := condition(pod, v1.PodScheduled)
	if c == nil { // it was created with its node
		return pod.CreationTimestamp.Time
	}
	bound := c.LastTransitionTime.Time
	if began := pod.Status.StartTime; c.Status != v1.ConditionTrue && began != nil {
		bound = earlier(bound, began.Time)
	}
	return later(bound, pod.CreationTimestamp.Time)
}

// end is the time at which a pod released its devices.
type end struct {
	at time.Time
	// estimated: the end was not observed.
	estimated bool
}

// endOf returns the end of a pod according to its status and its deletion; ok is false while it may hold
// its devices. The node writes when containers ended, and its clock may be wrong: no end is in the
// future.
func endOf(pod *v1.Pod, now time.Time) (e end, ok bool) {
	if !isOver(pod) && !goneButForFinalizers(pod) {
		return end{}, false
	}
	if at := lastFinished(pod); !at.IsZero() {
		return end{at: earlier(at, now)}, true
	}
	// Its node was lost, so that the end of its containers is unknown. The time of the eviction is used,
	// or that of the deletion.
	if c := condition(pod, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return end{at: earlier(c.LastTransitionTime.Time, now)}, true
	}
	// The deletion is the end only of a pod that had not ended before.
	if pod.DeletionTimestamp != nil {
		return end{at: earlier(pod.DeletionTimestamp.Time, now), estimated: isOver(pod)}, true
	}
	return end{at: now, estimated: true}, true
}

// isOver reports whether the pod's containers have ended for good.
func isOver(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// goneButForFinalizers reports whether only finalizers keep the pod: it was deleted without grace, or
// kubelet has deleted it.
func goneButForFinalizers(pod *v1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && (grace == nil || *grace == 0)
}

// lastFinished returns the time at which the last container ended; zero if one still runs, or no time is
// known.
func lastFinished(pod *v1.Pod) time.Time {
	var last time.Time
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Running != nil:
			return time.Time{}
		case s.State.Terminated != nil && s.State.Terminated.FinishedAt.After(last):
			last = s.State.Terminated.FinishedAt.Time
		}
	}
	return last
}

func condition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// seconds truncates a time to the precision of the API.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
