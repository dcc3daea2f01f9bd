// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signKey is the key of the canonical request in a pod's signature.
const signKey = "nvtopo.dev/request"

// SignPod keeps batching on. With batching the framework may give a pod the next node in the ranking of
// an equal pod just before it. That is right only if the ranking depends on nothing but the pod: for pods
// without GPUs, and for pods that take whole nodes. SignPod refuses a pod that takes a part of a node,
// because its ranking depends on the devices that other pods left and released. It also refuses a pod of
// a gang, which has its own node, a pod that the next cycle treats specially, and one that cannot be
// read.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	d, err := p.Profile.Demand(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if p.preSelector.RetriesOnAllNodes(pod.UID) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is tried on all nodes this time")
	}
	if p.Profile.IsMember(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is placed with its gang")
	}
	if !p.cares(d.Request) {
		return nil, nil
	}
	if d.HasGPUs() && !p.preSelector.TakesWholeNodes(d.Request) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod takes a part of a node's GPUs")
	}
	return []fwk.SignFragment{{Key: signKey, Value: d.RankingSignature()}}, nil
}
