// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestCountReaderTurns(t *testing.T) {
	turns := &v1alpha1.ComputePool{Spec: v1alpha1.ComputePoolSpec{Virtualization: &v1alpha1.Virtualization{
		Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4,
	}}}
	for name, tc := range map[string]struct {
		labels   map[string]string
		pool     *v1alpha1.ComputePool
		resource string
		want     int64
	}{
		"the node": {map[string]string{labelReplicas: "2"}, turns, "nvidia.com/gpu.shared", 2},
		"the node, of turns that are not renamed": {map[string]string{labelReplicas: "2"}, aPool(), "nvidia.com/gpu", 2},
		"the pool, where the node does not":       {nil, turns, "nvidia.com/gpu.shared", 4},
		"the pool, where the node's is no number": {map[string]string{labelReplicas: "many"}, turns, "nvidia.com/gpu.shared", 4},
		"a GPU that is whole yet":                 {nil, turns, "nvidia.com/gpu", 1},
		"another vendor's":                        {map[string]string{labelReplicas: "2"}, turns, "amd.com/gpu", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replicasOn(tc.labels, tc.pool, tc.resource); got != tc.want {
				t.Errorf("got %d replicas, want %d", got, tc.want)
			}
		})
	}
}

func TestCountedResources(t *testing.T) {
	pool := func(kind v1alpha1.PoolType, resources ...string) *v1alpha1.ComputePool {
		return &v1alpha1.ComputePool{Spec: v1alpha1.ComputePoolSpec{PoolType: kind, Resources: resources}}
	}
	for name, tc := range map[string]struct {
		pool     *v1alpha1.ComputePool
		resource string
		want     bool
	}{
		"a GPU in a pool of GPUs":          {pool(v1alpha1.PoolGPU), "nvidia.com/gpu", true},
		"its slices":                       {pool(v1alpha1.PoolGPU), "nvidia.com/mig-1g.10gb", true},
		"its turns":                        {pool(v1alpha1.PoolGPU), "nvidia.com/gpu.shared", true},
		"an NPU in a pool of GPUs":         {pool(v1alpha1.PoolGPU), "habana.ai/gaudi", false},
		"an NPU in a pool of NPUs":         {pool(v1alpha1.PoolNPU), "habana.ai/gaudi", true},
		"an NPU in a pool of both":         {pool(v1alpha1.PoolMixed), "habana.ai/gaudi", true},
		"another resource than is listed":  {pool(v1alpha1.PoolGPU, "amd.com/gpu"), "nvidia.com/gpu", false},
		"a network card in a pool of GPUs": {pool(v1alpha1.PoolGPU), "rdma/hca", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := counts(tc.pool, tc.resource); got != tc.want {
				t.Errorf("%s counts: %v, want %v", tc.resource, got, tc.want)
			}
		})
	}
}
