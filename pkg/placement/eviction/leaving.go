// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// Overdue is the time after the end of its grace period from which on a pod is stuck. Such a pod has a
	// finalizer or a dead kubelet, and might never end.
	Overdue = 30 * time.Second
	// HoldFor is how long the freed devices are kept for a preemptor after its victims should have ended.
	// Normally it takes them within a second of their end.
	HoldFor = 2 * time.Minute
	// maxNames is the number of pods that a status names.
	maxNames = 5
)

// GraceOf is the termination grace period of a pod.
func GraceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds // the request that deleted the pod may have set it
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(min(max(0, seconds), math.MaxInt32)) * time.Second // at most 68 years, so that nothing overflows
}

// Stuck reports whether a pod should have ended by now. The scheduler can do nothing about it.
func Stuck(pod *v1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(Overdue))
}

// Preempted reports whether a scheduler evicted a pod for another one.
func Preempted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}

// NamesFor returns a text for users of a namespace: the first few pods of the namespace by name, and the
// number of the others.
func NamesFor(namespace string, pods []*v1.Pod) string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Namespace + "/" + pod.Name
	}
	return ShortenedFor(namespace, "pod", names)
}

// ShortenedFor lists the first few of the names in a namespace, such as "ns/name", or without one, and the
// number of the others, with their noun, which the parameter what gives.
func ShortenedFor(namespace, what string, names []string) string {
	var own []string
	for _, name := range names {
		if of, _, ok := strings.Cut(name, "/"); !ok || of == namespace {
			own = append(own, name)
		}
	}
	others := ""
	switch n := len(names) - len(own); n {
	case 0:
		return Shortened(own)
	case 1:
		others = "a " + what + " of another namespace"
	default:
		others = fmt.Sprintf("%d %ss of other namespaces", n, what)
	}
	if len(own) == 0 {
		return others
	}
	return Shortened(own) + " and " + others
}

// Shortened lists the first few names and the number of the others.
func Shortened(names []string) string { return First(names, maxNames) }

// First lists the first names, at most `most`, and the number of the others.
func First(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
