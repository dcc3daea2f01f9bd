// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// NUMAGraph returns the machine's NUMA nodes as a graph without GPUs. It is
// there also for a node that has none, where Graphs returns an empty map.
func (t *NodeGPUTopology) NUMAGraph() (*nvtopo.Graph, error) {
	if err := checkSizes(&t.Spec); err != nil {
		return nil, fmt.Errorf("%s %q: %w", Kind, t.Name, err)
	}
	r := reader{spec: &t.Spec}
	if err := r.readNUMANodes(); err != nil {
		return nil, fmt.Errorf("%s %q: %w", Kind, t.Name, err)
	}
	g, err := nvtopo.NewGraph(nil, r.nodes, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s %q: spec.numaNodes: %w", Kind, t.Name, err)
	}
	return g, nil
}
