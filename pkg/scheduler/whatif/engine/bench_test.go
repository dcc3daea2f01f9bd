// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/engine"
)

// BenchmarkAnswer answers for one pod on nodes with four pods each, including the reading of the
// snapshot.
func BenchmarkAnswer(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var pods []*v1.Pod
			for i := range 4 * nodes {
				pods = append(pods, running(fmt.Sprintf("p%d", i), fmt.Sprintf("node-%04d", i/4), 1))
			}
			var saved bytes.Buffer
			if err := snapshotOf(b, nodes, pods...).Write(&saved); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(saved.Len()))
			b.ReportAllocs()
			for b.Loop() {
				s, err := whatif.Read(bytes.NewReader(saved.Bytes()))
				if err != nil {
					b.Fatal(err)
				}
				a, err := engine.Answer(b.Context(), s, &whatif.Asked{Pods: []*v1.Pod{asks("a", 4).Obj()}}, plugins)
				if err != nil || a.Pods[0].Outcome != whatif.Placed {
					b.Fatalf("%+v, %v", a, err)
				}
			}
		})
	}
}
