// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// Simulated returns the GPUs of a machine of the catalogue, with the ids that the exporter publishes for
// a simulated node of that name.
func Simulated(machineName, node string) ([]Device, error) {
	m, err := machine.Lookup(machineName)
	if err != nil {
		return nil, err
	}
	g, err := m.GraphFor(node)
	if err != nil {
		return nil, err
	}
	return FromGraph(g), nil
}

// FromGraph returns the GPUs of a graph as devices.
func FromGraph(g *nvtopo.Graph) []Device {
	out := make([]Device, g.Len())
	for i := range out {
		gpu := g.GPUs[i]
		out[i] = Device{ID: gpu.UUID, Unhealthy: gpu.Unhealthy != "", NUMANode: gpu.NUMANode}
		if gpu.NUMANode == nvtopo.UnknownNUMA {
			out[i].NUMANode = NoNUMA
		}
	}
	return out
}

// Plain returns n devices named prefix0, prefix1 … in equal blocks on numaNodes NUMA
// nodes, as GPUs are spread over sockets.
func Plain(prefix string, n, numaNodes int) ([]Device, error) {
	if n < 1 || numaNodes < 0 || numaNodes > n {
		return nil, fmt.Errorf("%d devices on %d NUMA nodes", n, numaNodes)
	}
	out := make([]Device, n)
	for i := range out {
		out[i] = Device{ID: fmt.Sprint(prefix, i), NUMANode: NoNUMA}
		if numaNodes > 0 {
			out[i].NUMANode = i * numaNodes / n
		}
	}
	return out, nil
}
