// SPDX-License-Identifier: Apache-2.0

package interposer_test

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

// BenchmarkCalls measures what standing in between costs: one unix socket more
// for Allocate, none for GetPreferredAllocation.
func BenchmarkCalls(b *testing.B) {
	n := newTestEnv(b)
	k := n.kubelet()
	n.agent(nil, interposer.Config{})
	n.plugin(8, nil)
	c := n.wait(k, gpu, healthy(8))
	available := []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"}
	b.Run("GetPreferredAllocation", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := prefer(b.Context(), c, available, nil, 4); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Allocate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := allocate(b.Context(), c, "GPU-0", "GPU-1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
