// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// shape is what members have in common that every node answers alike.
type shape struct {
	key       string
	pod       *v1.Pod
	demand    *placement.Demand
	required  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms
	ports     []v1.ContainerPort
	alone     bool // no two members on one node
}

// sameShape reports whether two pods have one shape. It is asked about each member, so it
// compares only what decides.
func sameShape(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(decides(a), decides(b)) && sameContainers(a.Spec.Containers, b.Spec.Containers) &&
		sameContainers(a.Spec.InitContainers, b.Spec.InitContainers)
}

// decided is what plugins look at, beside containers and what a Demand has.
type decided struct {
	NodeSelector map[string]string
	Affinity     *v1.Affinity
	Tolerations  []v1.Toleration
	Spread       []v1.TopologySpreadConstraint
	Resources    *v1.ResourceRequirements
	Overhead     v1.ResourceList
	Claims       []string
}

func decides(pod *v1.Pod) *decided {
	d := &decided{
		NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations,
		Spread: pod.Spec.TopologySpreadConstraints, Resources: pod.Spec.Resources, Overhead: pod.Spec.Overhead,
	}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			d.Claims = append(d.Claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			d.Claims = append(d.Claims, pod.Name+"-"+v.Name)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		if c := &pod.Spec.ResourceClaims[i]; c.ResourceClaimName != nil {
			d.Claims = append(d.Claims, *c.ResourceClaimName)
		} else {
			d.Claims = append(d.Claims, pod.Name+"-"+c.Name) // made for this pod
		}
	}
	return d
}

func sameContainers(a, b []v1.Container) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equality.Semantic.DeepEqual(a[i].Resources, b[i].Resources) || !equality.Semantic.DeepEqual(a[i].Ports, b[i].Ports) {
			return false
		}
	}
	return true
}

// newShape reads the pod that stands for its shape.
func newShape(pod *v1.Pod, d *placement.Demand) (*shape, error) {
	s := &shape{pod: pod, demand: d, required: nodeaffinity.GetRequiredNodeAffinity(pod)}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	var requests []v1.ResourceList
	for i := range containers {
		requests = append(requests, containers[i].Resources.Requests)
		for _, port := range containers[i].Ports {
			if port.HostPort > 0 {
				s.ports = append(s.ports, port)
			}
		}
	}
	key, err := json.Marshal([]any{pod.Namespace, d.Signature(), decides(pod), requests, s.ports})
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	s.key = string(key)
	s.alone = len(s.ports) > 0
	if a := pod.Spec.Affinity; a != nil {
		if a.NodeAffinity != nil {
			terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
			if err != nil {
				return nil, fmt.Errorf("pod %s/%s: preferred node affinity: %w", pod.Namespace, pod.Name, err)
			}
			s.preferred = terms
		}
		s.alone = s.alone || keepsApart(pod, a.PodAntiAffinity)
	}
	return s, nil
}

// keepsApart reports whether two such pods may not be on one node.
func keepsApart(pod *v1.Pod, a *v1.PodAntiAffinity) bool {
	if a == nil {
		return false
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		term := &a.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if term.TopologyKey != v1.LabelHostname {
			continue
		}
		if len(term.Namespaces) > 0 || term.NamespaceSelector != nil {
			continue // the plugin says it, and it is learned
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// admits reports whether the node takes such pods, as far as that can be told without the
// plugins. An empty node has no ports in use.
func (s *shape) admits(info fwk.NodeInfo, empty bool) bool {
	node := info.Node()
	if node == nil {
		return false
	}
	if ok, err := s.required.Match(node); err != nil || !ok {
		return false
	}
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), s.pod.Spec.Tolerations,
		&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}, false) {
		return false
	}
	_, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, s.pod.Spec.Tolerations,
		func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, false)
	if untolerated {
		return false
	}
	for i := range s.ports {
		p := &s.ports[i]
		if !empty && info.GetUsedPorts().CheckConflict(p.HostIP, string(p.Protocol), p.HostPort) {
			return false
		}
	}
	return true
}

// bound adds to a supply what the shape itself says.
func (s *shape) bound(supply fabric.Supply, node *v1.Node) fabric.Supply {
	if supply.Slots == nil {
		return supply
	}
	if s.alone {
		supply.Limit = fabric.AtMost(1)
	}
	if s.preferred != nil {
		supply.Preference = s.preferred.Score(node)
	}
	return supply
}
