// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// classKey returns a key that is equal for pods of one class: pods that every node answers alike, for the
// scheduler's plugins and for the planner of gangs. It leaves out claims, volumes and the namespace, which
// are looked at apart, and the labels, of which only an anti-affinity among such pods matters here.
func classKey(pod *v1.Pod, d *Demand) string {
	var requests []v1.ResourceList
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		requests = append(requests, c.Resources.Requests)
	}
	decides, err := json.Marshal([]any{decidedBy(pod), requests, HostPorts(pod), KeepsApart(pod)})
	if err != nil { // no API server admits such a pod
		return string(pod.UID)
	}
	// The profile has arguments that decide whether a node fits. The total request depends on which init
	// containers are restartable.
	return fmt.Sprintf("%s %s %d %v %s", pod.Spec.SchedulerName, d.Signature(), d.EphemeralStorage, d.Scalars, decides)
}

// SameClass reports whether two pods whose demands have one signature are of one class, without a key and,
// for most pods, without reflection: it is called for each member of a gang.
func SameClass(a, b *v1.Pod) bool {
	return a.Spec.SchedulerName == b.Spec.SchedulerName && decidedBy(a).same(decidedBy(b)) && sameContainers(a.Spec.Containers, b.Spec.Containers) &&
		sameContainers(a.Spec.InitContainers, b.Spec.InitContainers) && KeepsApart(a) == KeepsApart(b)
}

// decided holds the fields of a pod spec that plugins look at, beside the containers and the fields of
// Demand.
type decided struct {
	NodeSelector map[string]string             `json:",omitempty"`
	Affinity     *v1.Affinity                  `json:",omitempty"`
	Tolerations  []v1.Toleration               `json:",omitempty"`
	Spread       []v1.TopologySpreadConstraint `json:",omitempty"`
	Resources    *v1.ResourceRequirements      `json:",omitempty"`
	Overhead     v1.ResourceList               `json:",omitempty"`
}

func decidedBy(pod *v1.Pod) *decided {
	return &decided{
		NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations,
		Spread: pod.Spec.TopologySpreadConstraints, Resources: pod.Spec.Resources, Overhead: pod.Spec.Overhead,
	}
}

func (d *decided) same(e *decided) bool {
	return maps.Equal(d.NodeSelector, e.NodeSelector) && slices.EqualFunc(d.Tolerations, e.Tolerations, sameToleration) && sameResources(d.Overhead, e.Overhead) &&
		(d.Affinity == nil && e.Affinity == nil || equality.Semantic.DeepEqual(d.Affinity, e.Affinity)) &&
		(len(d.Spread) == 0 && len(e.Spread) == 0 || equality.Semantic.DeepEqual(d.Spread, e.Spread)) &&
		(d.Resources == nil && e.Resources == nil || equality.Semantic.DeepEqual(d.Resources, e.Resources))
}

func sameToleration(a, b v1.Toleration) bool {
	same := ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return same && a == b
}

func sameResources(a, b v1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

func sameContainers(a, b []v1.Container) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i].Resources, &b[i].Resources
		if !sameResources(x.Limits, y.Limits) || !sameResources(x.Requests, y.Requests) || !slices.Equal(x.Claims, y.Claims) || !slices.Equal(a[i].Ports, b[i].Ports) || !ptr.Equal(a[i].RestartPolicy, b[i].RestartPolicy) {
			return false
		}
	}
	return true
}
