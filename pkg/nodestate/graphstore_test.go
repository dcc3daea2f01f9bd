// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// BenchmarkApply stores graphs of nodes that are new to the store, as at a scheduler's
// start; live-B is what the store keeps of one beside the object itself.
func BenchmarkApply(b *testing.B) {
	for _, kind := range []string{"dgx1-v100", "dgx-h100"} {
		for _, compact := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/compact=%t", kind, compact), func(b *testing.B) {
				objects := make([]*v1alpha1.NodeGPUTopology, b.N)
				for i := range objects {
					objects[i] = topologyOf(b, fmt.Sprintf("n%d", i), kind)
					if compact {
						objects[i].Spec.Compact()
					}
				}
				s := New(testConfig(), &tickClock{now: time.Unix(1_700_000_000, 0)})
				before := liveHeap()
				b.ReportAllocs()
				b.ResetTimer()
				for _, obj := range objects {
					if _, err := s.Apply(obj); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(liveHeap()-before)/float64(b.N), "live-B/op")
				runtime.KeepAlive(s)
				runtime.KeepAlive(objects)
			})
		}
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
