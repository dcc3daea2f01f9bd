// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signKey is where the canonical request stands in a pod's signature.
const signKey = "nvtopo.dev/request"

// SignPod keeps batching on. The framework may give a pod the node that came next
// in the ranking of an equal pod just before. That is right only where nothing but
// the pod decides on the ranking: pods without GPUs, and pods that take whole
// nodes. A pod that takes a part is refused, since what the others left and gave
// back meanwhile decides; so is one that the next cycle treats apart, and one that
// cannot be read.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	d, err := p.demand(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if p.state.Widened(pod.UID) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is tried on all nodes this time")
	}
	if !p.cares(d.Request) {
		return nil, nil
	}
	if d.HasGPUs() && !p.state.TakesWholeNodes(d.Request) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod takes a part of a node's GPUs")
	}
	return []fwk.SignFragment{{Key: signKey, Value: d.Signature()}}, nil
}
