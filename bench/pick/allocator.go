// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// allocatorDevices turns a graph into what go-gpuallocator works on, by hand: it
// would ask the driver, but a policy reads nothing of a device but its index
// and its links.
func allocatorDevices(g *nvtopo.Graph) []*gpuallocator.Device {
	devices := make([]*gpuallocator.Device, len(g.GPUs))
	for i := range devices {
		devices[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
	}
	return devices
}
