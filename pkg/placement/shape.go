// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// Shape is a set of members of a gang that every node answers alike as far as the two objects alone decide
// it.
type Shape struct {
	Pod      *v1.Pod // stands for all
	Demand   *Demand
	Eligible Eligibility
	Ports    []v1.ContainerPort // see HostPorts
	Class    string             // equal for all shapes that every node answers alike; see classKey
	Alone    bool               // no two members on one node: by their ports, or their anti-affinity

	preferred *nodeaffinity.PreferredSchedulingTerms
}

// NewShape returns the shape of which pod is an example.
func NewShape(pod *v1.Pod, d *Demand) (s Shape, err error) {
	s = Shape{Pod: pod, Demand: d, Eligible: EligibilityOf(pod), Ports: HostPorts(pod), Class: classKey(pod, d)}
	s.Alone = len(s.Ports) > 0 || KeepsApart(pod)
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		s.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if err != nil {
		return s, fmt.Errorf("preferred node affinity: %w", err)
	}
	return s, nil
}

// Bounded returns the node's capacity for members with the shape's own limit (Alone) and its preference
// for the node.
func (s *Shape) Bounded(supply fabric.Supply, node *v1.Node) fabric.Supply {
	if supply.Slots == nil {
		return supply
	}
	if s.Alone {
		supply.Limit = fabric.AtMost(min(1, supply.Members()))
	}
	if s.preferred != nil {
		supply.Preference, supply.Hardware = s.preferred.Score(node), s.Demand.Prefers(node)
	}
	return supply
}
