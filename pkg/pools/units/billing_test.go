// SPDX-License-Identifier: Apache-2.0

package units

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		resource    string
		n, replicas int64
		want        v1alpha1.Decimal
	}{
		"whole GPUs":                          {"nvidia.com/gpu", 8, 1, "8"},
		"ten and not one":                     {"nvidia.com/gpu", 10, 1, "10"},
		"an NPU with capitals in its name":    {"huawei.com/Ascend910B", 2, 0, "2"},
		"a slice of 3 of 7":                   {"nvidia.com/mig-3g.40gb", 1, 1, "0.428"},
		"two slices of 3 of 7":                {"nvidia.com/mig-3g.40gb", 2, 1, "0.856"},
		"seven slices of 1 of 7":              {"nvidia.com/mig-1g.10gb", 7, 1, "0.994"},
		"all slices are a GPU":                {"nvidia.com/mig-7g.80gb", 1, 1, "1"},
		"a turn of four":                      {"nvidia.com/gpu.shared", 1, 4, "0.25"},
		"three turns of three are not a GPU":  {"nvidia.com/gpu.shared", 3, 3, "0.999"},
		"a slice on which two take turns":     {"nvidia.com/mig-3g.40gb.shared", 1, 2, "0.214"},
		"a name that is no slice: the device": {"nvidia.com/mig-xg.1gb", 1, 1, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Devices(tc.resource, tc.n, tc.replicas); got != tc.want {
				t.Errorf("%d of %s are %s devices, want %s", tc.n, tc.resource, got, tc.want)
			}
		})
	}
}

func TestDeviceOf(t *testing.T) {
	for resource, want := range map[string]string{
		"nvidia.com/gpu": "nvidia.com/gpu", "nvidia.com/gpu.shared": "nvidia.com/gpu", "nvidia.com/mig-1g.10gb": "nvidia.com/gpu",
		"habana.ai/gaudi": "habana.ai/gaudi",
	} {
		if got := DeviceOf(resource); got != want {
			t.Errorf("%s is of %s, want %s", resource, got, want)
		}
	}
}
