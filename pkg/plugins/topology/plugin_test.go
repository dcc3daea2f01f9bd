// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// TestOrderOfArguments: nodes are compared according to the arguments, by default in the published order.
func TestOrderOfArguments(t *testing.T) {
	tests := map[string]struct {
		change func(*config.TopologyAwareArgs)
		want   func(*nodeindex.Order)
	}{
		"by default the published order": {},
		"single GPUs to the slowest GPUs": {
			func(a *config.TopologyAwareArgs) { a.SingleGPUs = config.SingleGPUsSlowGPUs },
			func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesSlowGPUs },
		},
		"single GPUs where they take the least": {
			func(a *config.TopologyAwareArgs) { a.SingleGPUs = config.SingleGPUsLeastLost },
			func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesLeastLost },
		},
		"no machine left to larger pods": {
			func(a *config.TopologyAwareArgs) { a.LargerPodsHeadroom = new(0.0) },
			func(o *nodeindex.Order) { o.Headroom = 0 },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args, want := &config.TopologyAwareArgs{}, nodeindex.DefaultOrder()
			if tc.change != nil {
				tc.change(args)
				tc.want(&want)
			}
			config.SetDefaults_TopologyAwareArgs(args)
			got, err := orderOf(args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("order (-want,+got):\n%s", diff)
			}
		})
	}
}
