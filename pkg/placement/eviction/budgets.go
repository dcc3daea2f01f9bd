// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Budgets are the cluster's PodDisruptionBudgets, read once for one preemption.
type Budgets struct {
	// Allowed is the number of pods of each budget that may be evicted.
	Allowed []int32

	pdbs      []*policyv1.PodDisruptionBudget
	selectors []labels.Selector
}

// NewBudgets reads the budgets. A budget whose selector cannot be read, or selects nothing, protects no
// pod, as in kube-scheduler.
func NewBudgets(pdbs []*policyv1.PodDisruptionBudget) *Budgets {
	b := &Budgets{}
	for _, pdb := range pdbs {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		b.pdbs, b.selectors = append(b.pdbs, pdb), append(b.selectors, selector)
		b.Allowed = append(b.Allowed, pdb.Status.DisruptionsAllowed)
	}
	return b
}

// Of returns the budgets that a pod's eviction uses up. A pod whose disruption the budget's status already
// includes is not included twice.
func (b *Budgets) Of(pod *v1.Pod) []int {
	if len(pod.Labels) == 0 {
		return nil
	}
	var out []int
	for i, pdb := range b.pdbs {
		if pdb.Namespace != pod.Namespace || !b.selectors[i].Matches(labels.Set(pod.Labels)) {
			continue
		}
		if _, counted := pdb.Status.DisruptedPods[pod.Name]; !counted {
			out = append(out, i)
		}
	}
	return out
}
