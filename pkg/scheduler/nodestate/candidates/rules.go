// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Rules are the rules that keep most pods off a node, independent of its devices: cordons, taints,
// labels, too little free of the pod's requests, and places kept for gangs. Filter plugins decide.
type Rules struct {
	pod      *v1.Pod
	request  *podrequest.Request
	closed   *Closed
	selects  bool // the pod has requirements on node labels
	required nodeaffinity.RequiredNodeAffinity
}

// NewRules returns the rules for a pod. closed may be nil: nothing is kept.
func NewRules(pod *v1.Pod, request *podrequest.Request, closed *Closed) Rules {
	return Rules{
		pod: pod, request: request, closed: closed, required: nodeaffinity.GetRequiredNodeAffinity(pod),
		selects: pod.Spec.NodeSelector != nil || requiredAffinity(pod) != nil,
	}
}

// Admit reports whether no rule keeps the pod off a node with these resources, of which used are used,
// and this number of pods.
func (r *Rules) Admit(node *v1.Node, have, used fwk.Resource, pods int) bool {
	return r.tolerates(node) && (!r.selects || r.selected(node)) && r.hasRoom(have, used, pods) && !r.keptOut(node, have, used)
}

// keptOut ignores reservations: the list is advice.
func (r *Rules) keptOut(node *v1.Node, have, used fwk.Resource) bool {
	k, _ := r.closed.KeptFrom(r.pod, r.request, node.Name, &Use{Have: have, Used: used})
	return k != nil
}

func (r *Rules) tolerates(node *v1.Node) bool {
	why, _ := placement.Repels(node, r.pod.Spec.Tolerations)
	return why == placement.Eligible
}

func (r *Rules) selected(node *v1.Node) bool {
	ok, err := r.required.Match(node)
	return ok && err == nil
}

func (r *Rules) hasRoom(have, used fwk.Resource, pods int) bool {
	if have.GetMilliCPU()-used.GetMilliCPU() < r.request.MilliCPU || have.GetMemory()-used.GetMemory() < r.request.Memory ||
		have.GetAllowedPodNumber() <= pods {
		return false
	}
	if have.GetEphemeralStorage()-used.GetEphemeralStorage() < r.request.EphemeralStorage {
		return false
	}
	for name, n := range r.request.Scalars {
		if have.GetScalarResources()[name]-used.GetScalarResources()[name] < n {
			return false
		}
	}
	return true
}
