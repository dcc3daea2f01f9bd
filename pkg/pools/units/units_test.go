// SPDX-License-Identifier: Apache-2.0

package units

import (
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestMilliOf(t *testing.T) {
	tests := map[string]struct {
		resource string
		want     int64
		wantOK   bool
	}{
		"a seventh":                        {resource: "nvidia.com/mig-1g.10gb", want: 142, wantOK: true},
		"two sevenths":                     {resource: "nvidia.com/mig-2g.20gb", want: 285, wantOK: true},
		"three sevenths":                   {resource: "nvidia.com/mig-3g.40gb", want: 428, wantOK: true},
		"four sevenths":                    {resource: "nvidia.com/mig-4g.40gb", want: 571, wantOK: true},
		"one slice that is all of the GPU": {resource: "nvidia.com/mig-7g.80gb", want: 1000, wantOK: true},
		"media engines cost nothing":       {resource: "nvidia.com/mig-1g.10gb.me", want: 142, wantOK: true},
		"a profile that is not listed":     {resource: "nvidia.com/mig-2g.99gb", want: 285, wantOK: true},
		"an A30 has four slices":           {resource: "nvidia.com/mig-1g.6gb", want: 250, wantOK: true},
		"an A30 in two":                    {resource: "nvidia.com/mig-2g.12gb.me", want: 500, wantOK: true},
		"an A30 whole":                     {resource: "nvidia.com/mig-4g.24gb", want: 1000, wantOK: true},
		"a whole GPU is no slice":          {resource: "nvidia.com/gpu"},
		"a turn is no MIG slice":           {resource: "nvidia.com/gpu.shared"},
		"another vendor's":                 {resource: "example.com/mig-1g.10gb"},
		"no number":                        {resource: "nvidia.com/mig-g.10gb"},
		"more than there are":              {resource: "nvidia.com/mig-8g.80gb"},
		"none":                             {resource: "nvidia.com/mig-0g.10gb"},
		"a part of a slice":                {resource: "nvidia.com/mig-1c.3g.40gb"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := MilliOf(tc.resource); got != tc.want || ok != tc.wantOK {
				t.Errorf("got %d %v, want %d %v", got, ok, tc.want, tc.wantOK)
			}
		})
	}
}

func TestSliced(t *testing.T) {
	tests := map[string]struct {
		v          *v1alpha1.Virtualization
		want       Unit
		wantSliced bool
	}{
		"nothing is said":          {},
		"it is not enabled":        {v: &v1alpha1.Virtualization{Strategy: v1alpha1.StrategyMIG, Profile: "all-1g.10gb"}},
		"mig without a profile":    {v: &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG}},
		"mig that divides nothing": {v: &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-disabled"}},
		"mig": {
			v:    &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-balanced"},
			want: Unit{Resource: "pool.nvtopo.dev/milli-gpu", PerDevice: 1000}, wantSliced: true,
		},
		"turns": {
			v:    &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4},
			want: Unit{Resource: "nvidia.com/gpu.shared", PerDevice: 4}, wantSliced: true,
		},
		"turns without a number": {v: &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing}},
		"vgpu":                   {v: &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyVGPU, Profile: "default"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := Sliced(tc.v)
			if got != tc.want || ok != tc.wantSliced {
				t.Errorf("got %+v %v, want %+v %v", got, ok, tc.want, tc.wantSliced)
			}
		})
	}
}

// TestCount: the units of a GPU's parts never exceed the GPU.
func TestCount(t *testing.T) {
	milli, turns := Unit{Resource: MilliGPU, PerDevice: 1000}, Unit{Resource: SharedGPU, PerDevice: 4}
	tests := map[string]struct {
		unit     Unit
		resource string
		n, want  int64
	}{
		"seven of 1g":               {unit: milli, resource: "nvidia.com/mig-1g.10gb", n: 7, want: 994},
		"two of 3g":                 {unit: milli, resource: "nvidia.com/mig-3g.40gb", n: 2, want: 856},
		"thousandths":               {unit: milli, resource: MilliGPU, n: 500, want: 500},
		"whole GPUs are not given":  {unit: milli, resource: WholeGPU, n: 8},
		"turns":                     {unit: turns, resource: SharedGPU, n: 3, want: 3},
		"slices in a pool of turns": {unit: turns, resource: "nvidia.com/mig-1g.10gb", n: 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.unit.Count(tc.resource, tc.n); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestIsSlice(t *testing.T) {
	for resource, want := range map[string]bool{
		"nvidia.com/mig-1g.10gb": true, "nvidia.com/mig-1c.3g.40gb": true, "nvidia.com/gpu.shared": true, "nvidia.com/mig-1g.10gb.shared": true,
		"nvidia.com/gpu": false, "amd.com/gpu": false, "example.com/x.shared": false,
	} {
		if got := IsSlice(resource); got != want {
			t.Errorf("%s: got %v, want %v", resource, got, want)
		}
	}
}

// profiles are the slices that Kueue's configuration names: 1g, 2g, 3g, 4g and 7g on the GPUs of
// NVIDIA's MIG user guide. The suffix me marks the slice with media engines.
var profiles = []string{
	"1g.5gb", "1g.5gb.me", "1g.10gb", "1g.10gb.me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", // 40 GB
	"1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", // 80 GB
	"1g.11gb", "1g.11gb.me", "1g.22gb", "2g.22gb", "3g.44gb", "4g.44gb", "7g.88gb", // 94 GB, older drivers
	"1g.12gb", "1g.12gb.me", "1g.24gb", "2g.24gb", "3g.47gb", "3g.48gb", "4g.47gb", "4g.48gb", "7g.94gb", "7g.96gb", // 94, 96 GB
	"1g.16gb", "1g.18gb", "1g.18gb.me", "1g.35gb", "1g.36gb", "2g.33gb", "2g.35gb", "2g.36gb", // 141, 144 GB
	"3g.71gb", "3g.72gb", "4g.71gb", "4g.72gb", "7g.141gb", "7g.144gb",
	"1g.23gb", "1g.23gb.me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb", // 180 GB
	"1g.6gb", "1g.6gb.me", "2g.12gb", "2g.12gb.me", "4g.24gb", // A30
}

// transformation is an entry of resources.transformations in Kueue's configuration.
type transformation struct {
	Input    string            `json:"input"`
	Strategy string            `json:"strategy"`
	Outputs  map[string]string `json:"outputs"`
}

// transformations returns the entries by which Kueue counts MIG slices as thousandths of a GPU,
// in all pools alike. Those of time slicing would differ from pool to pool, so a pool with time
// slicing has its quota in replicas.
func transformations() []transformation {
	out := make([]transformation, 0, len(profiles))
	for _, p := range profiles {
		milli, _ := MilliOf(prefixMIG + p)
		out = append(out, transformation{
			Input: prefixMIG + p, Strategy: "Replace", Outputs: map[string]string{MilliGPU: strconv.FormatInt(milli, 10)},
		})
	}
	return out
}

// TestKueueConfig: Kueue reads the list from its configuration, which the devcluster has and the
// docs refer to.
func TestKueueConfig(t *testing.T) {
	data, err := os.ReadFile("../../../manifests/kueue/component/controller_manager_config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Resources struct {
			Transformations []transformation `json:"transformations"`
		} `json:"resources"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(transformations(), config.Resources.Transformations); diff != "" {
		t.Errorf("resources.transformations of manifests/kueue/component/controller_manager_config.yaml (-want +got):\n%s", diff)
	}
}
