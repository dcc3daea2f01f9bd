// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// AllocatableCPUs returns the CPUs that kubelet can assign exclusively to containers: all but the
// reserved ones. The set is empty unless kubelet's CPU manager policy is static.
func (p *PodResources) AllocatableCPUs(ctx context.Context) (nvtopo.CPUSet, error) {
	resp, err := p.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("allocatable CPUs: %w", classify(err))
	}
	cpus := make([]int, len(resp.GetCpuIds()))
	for i, id := range resp.GetCpuIds() {
		cpus[i] = int(id)
	}
	return nvtopo.NewCPUSet(cpus...), nil
}
