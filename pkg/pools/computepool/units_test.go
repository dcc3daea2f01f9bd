// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ComputePoolSpec)
		want   string
	}{
		"gpu":                        {want: "nvidia.com/gpu amd.com/gpu"},
		"npu":                        {change: func(s *v1alpha1.ComputePoolSpec) { s.PoolType = v1alpha1.PoolNPU }, want: "huawei.com/Ascend910B habana.ai/gaudi"},
		"mixed":                      {change: func(s *v1alpha1.ComputePoolSpec) { s.PoolType = v1alpha1.PoolMixed }, want: "nvidia.com/gpu amd.com/gpu huawei.com/Ascend910B habana.ai/gaudi"},
		"resources take their place": {change: func(s *v1alpha1.ComputePoolSpec) { s.Resources = []string{"example.com/chip"} }, want: "example.com/chip"},
		"turns on devices": {change: func(s *v1alpha1.ComputePoolSpec) {
			s.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4}
		}, want: "nvidia.com/gpu.shared"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			if tc.change != nil {
				tc.change(&pool.Spec)
			}
			var got []string
			for _, u := range Units(pool) {
				got = append(got, u.Resource)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

func TestPodDevices(t *testing.T) {
	t.Parallel()
	always := v1.ContainerRestartPolicyAlways
	container := func(n int64, inLimits bool) v1.Container {
		list := v1.ResourceList{nvidia: *resource.NewQuantity(n, resource.DecimalSI), v1.ResourceCPU: resource.MustParse("1")}
		if inLimits {
			return v1.Container{Resources: v1.ResourceRequirements{Limits: list}}
		}
		return v1.Container{Resources: v1.ResourceRequirements{Requests: list}}
	}
	sidecar := container(1, true)
	sidecar.RestartPolicy = &always
	for name, tc := range map[string]struct {
		spec v1.PodSpec
		want Amounts
	}{
		"nothing":                             {spec: v1.PodSpec{Containers: []v1.Container{{}}}},
		"limits alone, as templates have it":  {spec: v1.PodSpec{Containers: []v1.Container{container(2, true), container(3, true)}}, want: Amounts{nvidia: 5}},
		"requests":                            {spec: v1.PodSpec{Containers: []v1.Container{container(2, false)}}, want: Amounts{nvidia: 2}},
		"an init container takes its turn":    {spec: v1.PodSpec{InitContainers: []v1.Container{container(4, true)}, Containers: []v1.Container{container(2, true)}}, want: Amounts{nvidia: 4}},
		"a sidecar holds beside the others":   {spec: v1.PodSpec{InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{container(2, true)}}, want: Amounts{nvidia: 3}},
		"of other resources nothing is known": {spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"example.com/fpga": resource.MustParse("1")}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, heldBy(&tc.spec, Units(examplePool()))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
