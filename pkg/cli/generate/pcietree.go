// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// pcieTree builds a tree of PCIe switches with the distances of the graph. The graph has only distances,
// so the switches have invented addresses.
type pcieTree struct {
	graph    *nvtopo.Graph
	ids      []string // PCI addresses of the GPUs
	switches int      // made so far
	adapters int
}

// below returns the devices below the processor of one NUMA node. GPUs at PIX share a switch, those at PXB
// a switch above theirs. Others, and those at an unknown distance, meet in the processor.
func (t *pcieTree) below(node int) []ncclPCI {
	var here []int
	for i := range t.graph.GPUs {
		if t.graph.GPUs[i].NUMANode == node {
			here = append(here, i)
		}
	}
	var out []ncclPCI
	for _, far := range t.groups(here, nvtopo.PCIePXB) {
		near := t.groups(far, nvtopo.PCIePIX)
		outerNICs := t.adaptersAt(far, nvtopo.PCIePXB)
		if len(near) == 1 && len(outerNICs) == 0 {
			out = append(out, t.innermost(near[0])...)
			continue
		}
		outer := t.newSwitch(far)
		for _, group := range near {
			inner := t.newSwitch(group)
			inner.PCI = append(t.gpus(group), t.adaptersAt(group, nvtopo.PCIePIX)...)
			outer.PCI = append(outer.PCI, inner)
		}
		for _, nic := range outerNICs { // each behind a switch of its own, or it would be nearer
			inner := t.newSwitch(far)
			inner.PCI = []ncclPCI{nic}
			outer.PCI = append(outer.PCI, inner)
		}
		out = append(out, outer)
	}
	return out
}

// innermost adds a switch only for more than one GPU, or for a GPU with adapters.
func (t *pcieTree) innermost(group []int) []ncclPCI {
	nics := t.adaptersAt(group, nvtopo.PCIePIX)
	if len(group) == 1 && len(nics) == 0 {
		return t.gpus(group)
	}
	s := t.newSwitch(group)
	s.PCI = append(t.gpus(group), nics...)
	return []ncclPCI{s}
}

func (t *pcieTree) gpus(group []int) []ncclPCI {
	var out []ncclPCI
	for _, i := range group {
		out = append(out, t.gpu(i))
	}
	return out
}

// groups divides GPUs into those joined by paths of the level or nearer.
func (t *pcieTree) groups(gpus []int, level nvtopo.PCIeLevel) [][]int {
	var out [][]int
	for _, i := range gpus {
		joined := []int{i}
		var others [][]int
		for _, group := range out {
			if t.anyWithin(group, i, level) {
				joined = append(group, joined...)
			} else {
				others = append(others, group)
			}
		}
		others = append(others, joined)
		out = others
	}
	return out
}

func (t *pcieTree) anyWithin(group []int, i int, level nvtopo.PCIeLevel) bool {
	for _, j := range group {
		if l := t.graph.Link(i, j).PCIe; l != nvtopo.PCIeUnknown && l <= level {
			return true
		}
	}
	return false
}

// adaptersAt returns the adapters whose nearest GPU is one of the group, at that level. NCCL finds the
// others by itself: they are beyond the processor in any case.
func (t *pcieTree) adaptersAt(group []int, level nvtopo.PCIeLevel) []ncclPCI {
	var out []ncclPCI
	for i := range t.graph.NICs {
		nic := &t.graph.NICs[i]
		nearest := -1
		for gpu, l := range nic.Levels {
			if l != nvtopo.PCIeUnknown && (nearest < 0 || l < nic.Levels[nearest]) {
				nearest = gpu
			}
		}
		if nearest < 0 || nic.Levels[nearest] != level {
			continue
		}
		for _, gpu := range group {
			if gpu == nearest {
				t.adapters++
				out = append(out, ncclPCI{
					BusID: madeUp(0xfffe, t.adapters), Class: classNIC, Speed: linkSpeed(t.gen(gpu)), Width: linkWidth,
					NIC: &ncclNIC{Nets: []ncclNet{{Name: nic.Name}}},
				})
			}
		}
	}
	return out
}

func (t *pcieTree) newSwitch(group []int) ncclPCI {
	t.switches++
	return ncclPCI{BusID: madeUp(0xffff, t.switches), Class: classBridge, Speed: linkSpeed(t.gen(group[0])), Width: linkWidth}
}

// madeUp returns an address in a PCI domain that no machine has.
func madeUp(domain, n int) string { return fmt.Sprintf("%04x:%02x:%02x.0", domain, n>>8, n&0xff) }

// gen is the PCIe generation of a GPU's slot; an unknown one is taken for 4, as everywhere.
func (t *pcieTree) gen(gpu int) nvtopo.PCIeGen {
	if m := knownModel(t.graph.GPUs[gpu].Model); m.gen != 0 {
		return m.gen
	}
	return 4
}

// linkSpeed is the kernel's name of a generation's rate.
func linkSpeed(gen nvtopo.PCIeGen) string {
	switch gen {
	case 3:
		return "8.0 GT/s PCIe"
	case 5:
		return "32.0 GT/s PCIe"
	}
	return "16.0 GT/s PCIe"
}
