// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

func requiredAffinity(pod *v1.Pod) *v1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// nodeKnown reports whether the pod's node is practically known: the pod is nominated, or names its node,
// as those of a DaemonSet do.
func nodeKnown(pod *v1.Pod) bool {
	if pod.Status.NominatedNodeName != "" {
		return true
	}
	required := requiredAffinity(pod)
	return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool { return len(t.MatchFields) > 0 })
}

// hasWishes reports whether the pod's place depends on properties that the index does not know: other
// pods, volumes, claims, ports, or preferred labels.
func hasWishes(pod *v1.Pod) bool {
	spec := &pod.Spec
	if len(spec.TopologySpreadConstraints) > 0 || len(spec.ResourceClaims) > 0 {
		return true
	}
	if a := spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil ||
		a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		return true
	}
	if slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		return true
	}
	return len(placement.HostPorts(pod)) > 0
}
