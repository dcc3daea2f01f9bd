// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestNUMANodeSharing: machines share their NUMA nodes.
func TestNUMANodeSharing(t *testing.T) {
	var reader Reader
	read := func(change func(*NodeGPUTopologySpec)) (*nvtopo.Graph, *nvtopo.Graph) {
		t.Helper()
		obj := FromGraph("n", "", fourGPUs(t))
		change(&obj.Spec)
		want, err := obj.Graphs()
		if err != nil {
			t.Fatal(err)
		}
		graphs, numa, err := reader.Read(obj)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, graphs, cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
			t.Errorf("shared it is another (-by itself,+shared):\n%s", diff)
		}
		return graphs[DefaultResource], numa
	}
	first, numa := read(func(*NodeGPUTopologySpec) {})
	for name, tc := range map[string]struct {
		change     func(*NodeGPUTopologySpec)
		wantShared bool
	}{
		"the same":            {func(*NodeGPUTopologySpec) {}, true},
		"other GPUs":          {func(s *NodeGPUTopologySpec) { s.GPUs[0].ID, s.GPUs[0].CPUs = "GPU-x", "2-3" }, true},
		"another id":          {func(s *NodeGPUTopologySpec) { s.NUMANodes[1].ID = 7; s.GPUs[2].NUMANode = 7; s.NICs = nil }, false},
		"other CPUs":          {func(s *NodeGPUTopologySpec) { s.NUMANodes[1].CPUs = "2-4" }, false},
		"cores of one thread": {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].ThreadsPerCore = 1 }, false},
		"siblings": {func(s *NodeGPUTopologySpec) {
			s.NUMANodes[0].ThreadsPerCore, s.NUMANodes[0].Siblings = 0, []string{"0-1", "4-5"}
		}, false},
		"no memory":        {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Memory = nil }, false},
		"other memory":     {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Memory = new(resource.MustParse("1Gi")) }, false},
		"another distance": {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Distances = []int32{10, 32} }, false},
		"no distances":     {func(s *NodeGPUTopologySpec) { s.NUMANodes[0].Distances = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := read(tc.change)
			if (n == numa) != tc.wantShared || (&g.NUMANodes[0] == &first.NUMANodes[0]) != tc.wantShared {
				t.Errorf("shared: %t, want %t", n == numa, tc.wantShared)
			}
		})
	}
	runtime.KeepAlive(numa)
}

// TestNUMANodeRelease: NUMA nodes that nobody holds are forgotten. It has one node publish other
// NUMA nodes again and again.
func TestNUMANodeRelease(t *testing.T) {
	var reader Reader
	for i := range 1000 {
		obj := FromGraph("n", "", fourGPUs(t))
		obj.Spec.NUMANodes[0].Memory = new(resource.MustParse(fmt.Sprintf("%dMi", i+1)))
		if _, _, err := reader.Read(obj); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // cleanups run some time after a collection
		runtime.GC()
		reader.mu.Lock()
		left := len(reader.layouts)
		reader.mu.Unlock()
		if left == 0 {
			return
		}
	}
	t.Errorf("%d layouts are kept", len(reader.layouts))
}
