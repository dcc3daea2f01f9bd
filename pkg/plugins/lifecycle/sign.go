// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signKey is where the canonical request stands in a pod's signature.
const signKey = "nvtopo.dev/request"

// SignPod keeps batching on: pods with equal requests get equal fragments, and
// pods this plugin is not for add nothing. A pod that cannot be read is not
// signable.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	d, err := p.demand(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if !p.cares(d.Request) {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: signKey, Value: d.Signature()}}, nil
}
