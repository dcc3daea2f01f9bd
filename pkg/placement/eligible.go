// SPDX-License-Identifier: Apache-2.0

package placement

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// Eligibility decides which nodes take a pod by the two objects alone: node selector, required node
// affinity, cordons and taints. The node's usage does not matter.
type Eligibility struct {
	required    nodeaffinity.RequiredNodeAffinity
	tolerations []v1.Toleration
}

// EligibilityOf returns the eligibility of a pod.
func EligibilityOf(pod *v1.Pod) Eligibility {
	return Eligibility{required: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}
}

// Ineligible is the property of a node that keeps a pod off it.
type Ineligible uint8

// The reasons, in the order in which they are checked.
const (
	Eligible      Ineligible = iota
	NotSelected              // the pod's node selector or required node affinity
	Unschedulable            // the node is cordoned
	Tainted                  // a taint that the pod does not tolerate
)

// Allows reports whether a node takes the pod. An affinity that cannot be read allows none.
func (e *Eligibility) Allows(node *v1.Node) bool {
	why, _ := e.Judge(node)
	return why == Eligible
}

// Judge returns why the node does not take the pod, and the taint if it is one.
func (e *Eligibility) Judge(node *v1.Node) (Ineligible, v1.Taint) {
	if ok, err := e.required.Match(node); err != nil || !ok {
		return NotSelected, v1.Taint{}
	}
	return Repels(node, e.tolerations)
}

// comparesTaints enables the operators Gt and Lt of tolerations. Where the feature gate
// TaintTolerationComparisonOperators is off, the API server takes no pod that has them.
const comparesTaints = true

// Repels returns why a node does not take pods with these tolerations: Unschedulable, or Tainted and the
// taint; Eligible if it takes them.
func Repels(node *v1.Node, tolerations []v1.Toleration) (Ineligible, v1.Taint) {
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), tolerations,
		&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}, comparesTaints) {
		return Unschedulable, v1.Taint{}
	}
	if len(node.Spec.Taints) == 0 {
		return Eligible, v1.Taint{}
	}
	taint, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations,
		func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, comparesTaints)
	if untolerated {
		return Tainted, taint
	}
	return Eligible, v1.Taint{}
}

// Closed returns why a node takes no new pods at all: "cordoned" or "not ready"; empty if the node is
// open. A node of a domain that a ClusterTopology excludes is open: it gets no new members of gangs, but
// single pods are still placed on it.
func Closed(node *v1.Node) string {
	if node.Spec.Unschedulable {
		return "cordoned"
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			return "not ready"
		}
	}
	return ""
}

// KeepsApart reports whether an anti-affinity of such pods keeps two of them off one node. Terms about
// other namespaces are left to kube-scheduler's plugin.
func KeepsApart(pod *v1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return false
	}
	terms := a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range terms {
		term := &terms[i]
		if term.TopologyKey != v1.LabelHostname || len(term.Namespaces) > 0 || term.NamespaceSelector != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// HostPorts returns the ports that a pod has on its node. Those of an init container are included if it is
// restartable, as in kube-scheduler.
func HostPorts(pod *v1.Pod) (ports []v1.ContainerPort) {
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}
