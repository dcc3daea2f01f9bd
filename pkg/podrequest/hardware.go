// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// hardwareTerms are the terms of a pod's preferred node affinity of which every expression is about
// one of the labels; nil if there is none, or one cannot be read.
func hardwareTerms(pod *v1.Pod, labels []string) *nodeaffinity.PreferredSchedulingTerms {
	if a := pod.Spec.Affinity; a == nil || a.NodeAffinity == nil {
		return nil
	}
	var terms []v1.PreferredSchedulingTerm
	for _, t := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		other := func(e v1.NodeSelectorRequirement) bool { return !slices.Contains(labels, e.Key) }
		if len(t.Preference.MatchExpressions) > 0 && len(t.Preference.MatchFields) == 0 && !slices.ContainsFunc(t.Preference.MatchExpressions, other) {
			terms = append(terms, t)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	read, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return nil // NodeAffinity says so
	}
	return read
}

// Prefers is how much the pod would like a node for its hardware: the weights of the terms that the
// node's labels match.
func (r *Request) Prefers(node *v1.Node) int64 {
	if r.Hardware == nil || node == nil {
		return 0
	}
	return r.Hardware.Score(node)
}
