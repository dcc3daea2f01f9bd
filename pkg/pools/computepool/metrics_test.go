// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// Limits and guarantees are in devices, so usage is, too: alerts compare them.
func TestUsageOf(t *testing.T) {
	tests := map[string]struct {
		unit units.Unit
		held int64
		want usage
	}{
		"whole devices": {
			unit: units.Unit{Resource: "amd.com/gpu", PerDevice: 1}, held: 3,
			want: usage{resource: "amd.com/gpu", tenant: "a", devices: 3},
		},
		"two slices of 3g": {
			unit: units.Unit{Resource: units.MilliGPU, PerDevice: units.PerDevice}, held: 856,
			want: usage{resource: units.WholeGPU, tenant: "a", devices: 0.856},
		},
		"five of four turns": {
			unit: units.Unit{Resource: units.SharedGPU, PerDevice: 4}, held: 5,
			want: usage{resource: units.WholeGPU, tenant: "a", devices: 1.25},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := &Capacity{Devices: []Devices{{Unit: tc.unit, ByTenant: map[string]int64{"a": tc.held}}}}
			if diff := cmp.Diff([]usage{tc.want}, usageOf(c), cmp.AllowUnexported(usage{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
