// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// readSoftTerms sets Hardware and SoftTerms. A term of the preferred node affinity is about hardware if
// each of its expressions is about one of the labels.
func (r *Request) readSoftTerms(pod *v1.Pod, labels []string) {
	r.SoftTerms = slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.ScheduleAnyway
	})
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	r.SoftTerms = r.SoftTerms || a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0
	if a.NodeAffinity == nil {
		return
	}
	var terms []v1.PreferredSchedulingTerm
	for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		other := func(e v1.NodeSelectorRequirement) bool { return !slices.Contains(labels, e.Key) }
		if p := &t.Preference; len(p.MatchExpressions) > 0 && len(p.MatchFields) == 0 && !slices.ContainsFunc(p.MatchExpressions, other) {
			terms = append(terms, t)
		} else {
			r.SoftTerms = true
		}
	}
	if len(terms) == 0 {
		return
	}
	if read, err := nodeaffinity.NewPreferredSchedulingTerms(terms); err == nil { // else NodeAffinity reports it
		r.Hardware = read
	}
}

// Prefers returns how much the pod prefers a node for its hardware: the sum of the weights of the terms
// that the node's labels match.
func (r *Request) Prefers(node *v1.Node) int64 {
	if r.Hardware == nil || node == nil {
		return 0
	}
	return r.Hardware.Score(node)
}
