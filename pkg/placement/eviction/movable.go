// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Unmovable returns why a bound pod should not be moved to another node; empty if it may be. chosen: the
// scheduler chose the pod's GPUs, or it has none.
func (b *Budgets) Unmovable(p *v1.Pod, chosen bool) string {
	if why := unmovableByItself(p); why != "" {
		return why
	}
	if !chosen {
		return "the scheduler did not choose its GPUs"
	}
	for _, i := range b.Of(p) {
		if b.Allowed[i] < 1 {
			return "a PodDisruptionBudget allows no disruption"
		}
	}
	return ""
}

// unmovableByItself returns why the pod should not be moved according to its own spec.
func unmovableByItself(p *v1.Pod) string {
	// Whether it may be moved does not depend on the resources, nor on the scheduler's defaults.
	r, err := podrequest.Parse(p, &podrequest.Options{DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies()})
	if err != nil {
		return err.Error()
	}
	gang, member := gangrequest.KeyOf(p)
	owner := metav1.GetControllerOfNoCopy(p)
	switch {
	case r.Immovable:
		return "annotation " + podrequest.MovableKey + " is false"
	case p.DeletionTimestamp != nil:
		return "it is being deleted"
	case member:
		return "it is a member of " + gang.String()
	case owner == nil:
		return "no controller would make it again"
	case owner.Kind == "DaemonSet" || owner.Kind == "Node":
		return "it belongs on its node (" + owner.Kind + ")"
	case dependsOnPods(p):
		return "its place depends on other pods (affinity or topology spread)"
	}
	return ""
}

// dependsOnPods reports whether the pod has terms by which the places of other pods limit its own.
func dependsOnPods(p *v1.Pod) bool {
	if a := p.Spec.Affinity; a != nil {
		if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
			a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.DoNotSchedule
	})
}
