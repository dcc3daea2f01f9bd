// SPDX-License-Identifier: Apache-2.0

package units

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Extended returns the names of the extended resources in a list of requests, sorted.
func Extended(requests v1.ResourceList) []string {
	var names []string
	for name, q := range requests {
		if strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/") && q.Value() > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// AsksForDevices reports whether a container of a pod requests an extended resource.
func AsksForDevices(pod *v1.Pod) bool {
	asks := func(c v1.Container) bool {
		return len(Extended(c.Resources.Requests)) > 0 || len(Extended(c.Resources.Limits)) > 0
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}
