// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestQuantity(t *testing.T) {
	for name, tc := range map[string]struct {
		resource        string
		count, replicas int64
		want            v1alpha1.Decimal
	}{
		"whole GPUs":                                 {"nvidia.com/gpu", 8, 1, "8"},
		"an NPU with capitals in its name":           {"huawei.com/Ascend910B", 2, 1, "2"},
		"a slice of 3 of 7":                          {"nvidia.com/mig-3g.40gb", 1, 1, "0.428"},
		"two slices of 3 of 7":                       {"nvidia.com/mig-3g.40gb", 2, 1, "0.856"},
		"seven slices of 1 of 7":                     {"nvidia.com/mig-1g.10gb", 7, 1, "0.994"},
		"a slice with a media engine":                {"nvidia.com/mig-1g.10gb.me", 1, 1, "0.142"},
		"all slices are a GPU":                       {"nvidia.com/mig-7g.80gb", 1, 1, "1"},
		"a compute slice is billed as its GPU slice": {"nvidia.com/mig-1c.3g.40gb", 1, 1, "0.428"},
		"a quarter of a GPU's time":                  {"nvidia.com/gpu", 1, 4, "0.25"},
		"a third is rounded down":                    {"nvidia.com/gpu", 3, 3, "0.999"},
		"a renamed share":                            {"nvidia.com/gpu.shared", 2, 2, "1"},
		"a slice whose time is shared":               {"nvidia.com/mig-3g.40gb", 1, 2, "0.214"},
		"no number of slices: a whole device":        {"nvidia.com/mig-xg.1gb", 1, 1, "1"},
		"more slices than a GPU has: a whole device": {"nvidia.com/mig-9g.1gb", 1, 1, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Quantity(tc.resource, tc.count, tc.replicas); got != tc.want {
				t.Errorf("%d of %s are %s devices, want %s", tc.count, tc.resource, got, tc.want)
			}
		})
	}
}

func TestWhoSaysHowManyTakeTurns(t *testing.T) {
	shared := &v1alpha1.ComputePool{Spec: v1alpha1.ComputePoolSpec{Virtualization: &v1alpha1.Virtualization{
		Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4,
	}}}
	off := shared.DeepCopy()
	off.Spec.Virtualization.Enabled = false
	for name, tc := range map[string]struct {
		labels   map[string]string
		pool     *v1alpha1.ComputePool
		resource string
		want     int64
	}{
		"the node":                                {map[string]string{"nvidia.com/gpu.replicas": "2"}, shared, "nvidia.com/gpu", 2},
		"the node, of a renamed resource":         {map[string]string{"nvidia.com/gpu.replicas": "2"}, shared, "nvidia.com/gpu.shared", 2},
		"the pool, where the node does not":       {nil, shared, "nvidia.com/gpu", 4},
		"the pool, where the node's is no number": {map[string]string{"nvidia.com/gpu.replicas": "many"}, shared, "nvidia.com/gpu", 4},
		"nobody: one":                             {nil, &v1alpha1.ComputePool{}, "nvidia.com/gpu", 1},
		"the pool says what is off: one":          {nil, off, "nvidia.com/gpu", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replicasOn(tc.labels, tc.pool, tc.resource); got != tc.want {
				t.Errorf("got %d replicas, want %d", got, tc.want)
			}
		})
	}
}

func TestWhichResourcesCount(t *testing.T) {
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
		"its shares":                       {pool(v1alpha1.PoolGPU), "nvidia.com/gpu.shared", true},
		"an NPU in a pool of GPUs":         {pool(v1alpha1.PoolGPU), "habana.ai/gaudi", false},
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
