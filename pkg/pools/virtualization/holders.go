// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// prefixDevices is the prefix of the names of all resources that NVIDIA's managers change.
const prefixDevices = "nvidia.com/"

// holds reports whether a pod keeps devices on its node: devices of an ended pod are free.
func holds(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return false
	}
	asks := func(c v1.Container) bool {
		for name, n := range c.Resources.Limits {
			if strings.HasPrefix(string(name), prefixDevices) && n.Sign() > 0 {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}

// stays returns why a pod is not evicted, or "": it would return to the node at once, so the node's
// administrator has to end it.
func stays(pod *v1.Pod) (why string) {
	if _, static := pod.Annotations[v1.MirrorPodAnnotationKey]; static {
		return "it is a static pod"
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return "it is of DaemonSet " + owner.Name
	}
	return ""
}
