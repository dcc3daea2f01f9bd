// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// TestRoom: a node of ten CPUs, ten bytes of memory and of storage, ten GPUs and ten pods. One pod uses
// two of each, and a second one the amounts of the row.
func TestRoom(t *testing.T) {
	amounts := func(n int64) usage.Amounts {
		list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods, gpu} {
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
		return usage.AmountsOf(list)
	}
	tests := map[string]struct {
		asks      podrequest.Request
		want      int // how many more there is room for
		wantLacks []Shortage
	}{
		"nothing":         {want: 8},
		"a CPU and more":  {asks: podrequest.Request{MilliCPU: 1500}, want: 4},
		"memory":          {asks: podrequest.Request{Memory: 3}, want: 1},
		"storage":         {asks: podrequest.Request{EphemeralStorage: 3}, want: 1},
		"GPUs":            {asks: podrequest.Request{Scalars: map[v1.ResourceName]int64{gpu: 2}}, want: 3},
		"too much memory": {asks: podrequest.Request{Memory: 5}, wantLacks: []Shortage{{v1.ResourceMemory, 3, 5}}},
		"too much of all": {
			asks: podrequest.Request{MilliCPU: 5000, Memory: 5, EphemeralStorage: 5, Scalars: map[v1.ResourceName]int64{gpu: 5}},
			wantLacks: []Shortage{
				{v1.ResourceCPU, 3000, 5000}, {v1.ResourceEphemeralStorage, 3, 5}, {v1.ResourceMemory, 3, 5}, {gpu, 3, 5},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all, two := amounts(10), amounts(2)
			room := NewRoom(&all, all.Pods())
			room.TakeAll(&two, 1)
			room.Take(&tc.asks, 1)
			if got := room.Holds(&tc.asks); got != tc.want {
				t.Errorf("room for %d, want %d", got, tc.want)
			}
			if diff := cmp.Diff(tc.wantLacks, room.Lacks(&tc.asks)); diff != "" {
				t.Errorf("what is short (-want +got)\n%s", diff)
			}
		})
	}
}
