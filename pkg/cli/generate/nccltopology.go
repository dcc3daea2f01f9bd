// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Values in NCCL's topology files (NVIDIA/nccl, src/graph/xml.cc and topo.cc).
const (
	ncclVersion = 1
	classBridge = "0x060400" // a PCIe switch
	classGPU    = "0x030200"
	classNIC    = "0x020000"
	classNVS    = "0x068000" // an NVSwitch
	// switchTarget is the PCI address that the driver reports for an NVSwitch it cannot see.
	switchTarget = "fffffff:ffff:ff"
	// maxValue is the longest value of an attribute, in bytes.
	maxValue = 255
	// linkWidth is the number of PCIe lanes of a data centre's GPU.
	linkWidth = 16
)

// CPUModel describes the processors for NCCL, in its names: arch x86_64, arm64 or ppc64; vendor as in
// CPUID, for x86_64.
type CPUModel struct {
	Arch, Vendor  string
	Family, Model int // of processors of Intel and Zhaoxin, as lscpu prints them
}

// The elements of the file. Their order and names are NCCL's.
type (
	ncclSystem struct {
		XMLName xml.Name  `xml:"system"`
		Version int       `xml:"version,attr"`
		CPUs    []ncclCPU `xml:"cpu"`
	}
	ncclCPU struct {
		NUMAID   int       `xml:"numaid,attr"`
		Affinity string    `xml:"affinity,attr,omitempty"`
		Arch     string    `xml:"arch,attr"`
		Vendor   string    `xml:"vendor,attr,omitempty"`
		Family   int       `xml:"familyid,attr,omitempty"`
		Model    int       `xml:"modelid,attr,omitempty"`
		PCI      []ncclPCI `xml:"pci"`
	}
	ncclPCI struct {
		BusID string    `xml:"busid,attr"`
		Class string    `xml:"class,attr"`
		Speed string    `xml:"link_speed,attr,omitempty"`
		Width int       `xml:"link_width,attr,omitempty"`
		PCI   []ncclPCI `xml:"pci"`
		GPU   *ncclGPU  `xml:"gpu"`
		NIC   *ncclNIC  `xml:"nic"`
	}
	ncclGPU struct {
		Dev     int          `xml:"dev,attr"`
		SM      int          `xml:"sm,attr,omitempty"`
		Rank    int          `xml:"rank,attr"`
		NVLinks []ncclNVLink `xml:"nvlink"`
	}
	ncclNVLink struct {
		Target string `xml:"target,attr"`
		Count  int    `xml:"count,attr"`
		Class  string `xml:"tclass,attr"`
	}
	ncclNIC struct {
		Nets []ncclNet `xml:"net"`
	}
	ncclNet struct {
		Name string `xml:"name,attr"`
	}
)

// busID is a PCI address with a domain of 4 or 8 hexadecimal digits.
var busID = regexp.MustCompile(`^(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$`)

// NCCLTopology returns the graph as a file for NCCL_TOPO_FILE. NCCL finds by itself the parts that are
// left out; an error is about the processor, or has ErrNotKnown.
func NCCLTopology(g *nvtopo.Graph, cpu CPUModel) ([]byte, error) {
	if err := cpu.check(); err != nil {
		return nil, err
	}
	ids := make([]string, g.Len())
	for i := range g.GPUs {
		m := busID.FindStringSubmatch(strings.ToLower(g.GPUs[i].PCIBusID))
		if m == nil {
			return nil, fmt.Errorf("%w: the PCI address of GPU %d, by which NCCL finds it; the text of nvidia-smi topo -m has none", ErrNotKnown, g.GPUs[i].Index)
		}
		ids[i] = m[1]
	}
	t := &pcieTree{graph: g, ids: ids}
	system := ncclSystem{Version: ncclVersion}
	for _, node := range g.NUMAOf(nvtopo.FullMask(g.Len())) {
		c := ncclCPU{NUMAID: node, Arch: cpu.Arch, Vendor: cpu.Vendor, Family: cpu.Family, Model: cpu.Model, PCI: t.below(node)}
		if i := slices.IndexFunc(g.NUMANodes, func(n nvtopo.NUMANode) bool { return n.ID == node }); i >= 0 {
			c.Affinity = cpuMap(g.NUMANodes[i].CPUs)
		}
		if len(c.Affinity) > maxValue {
			c.Affinity = ""
		}
		system.CPUs = append(system.CPUs, c)
	}
	for i := range g.Len() {
		for j := range i {
			if k := g.Link(i, j).Class.Kind; k != nvtopo.KindPCIe && k != nvtopo.KindNVLink {
				return nil, fmt.Errorf("%w: NVLinks; GPUs %d and %d have %s, and NCCL is for NVIDIA's GPUs", ErrNotKnown, g.GPUs[j].Index, g.GPUs[i].Index, g.Link(i, j).Class)
			}
		}
	}
	// NCCL's reader supports neither the XML declaration nor tabs.
	data, err := xml.MarshalIndent(system, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write XML: %w", err)
	}
	return append(data, '\n'), nil
}

func (c CPUModel) check() error {
	switch c.Arch {
	case "arm64", "ppc64":
		if c.Vendor != "" || c.Family != 0 || c.Model != 0 {
			return fmt.Errorf("vendor, family and model are for processors of x86_64, not %s", c.Arch)
		}
		return nil
	case "x86_64":
	default:
		return fmt.Errorf("processor architecture %q: want x86_64, arm64 or ppc64", c.Arch)
	}
	switch c.Vendor {
	case "AuthenticAMD":
		return nil
	case "GenuineIntel", "CentaurHauls", "  Shanghai  ":
		if c.Family < 1 || c.Model < 1 {
			return fmt.Errorf("processors of %s: NCCL wants their family and model, which lscpu prints", strings.TrimSpace(c.Vendor))
		}
		return nil
	}
	return fmt.Errorf("processor vendor %q: want GenuineIntel, AuthenticAMD, CentaurHauls or \"  Shanghai  \"", c.Vendor)
}

// gpu returns the element of one GPU. NCCL counts NVLinks to NVSwitches together.
func (t *pcieTree) gpu(i int) ncclPCI {
	d := &t.graph.GPUs[i]
	out := ncclGPU{Dev: d.Index, SM: knownModel(d.Model).sm, Rank: i}
	switched := 0
	for j := range t.graph.Len() {
		l := t.graph.Link(i, j)
		switch {
		case j == i || l.Class.Kind != nvtopo.KindNVLink:
		case l.Switched:
			switched = max(switched, l.Class.Lanes)
		default:
			out.NVLinks = append(out.NVLinks, ncclNVLink{Target: t.ids[j], Count: l.Class.Lanes, Class: classGPU})
		}
	}
	if switched > 0 {
		out.NVLinks = append(out.NVLinks, ncclNVLink{Target: switchTarget, Count: switched, Class: classNVS})
	}
	pci := ncclPCI{BusID: t.ids[i], Class: classGPU, GPU: &out}
	if m := knownModel(d.Model); m.gen != 0 {
		pci.Speed, pci.Width = linkSpeed(m.gen), linkWidth
	}
	return pci
}

// cpuMap writes CPUs as the kernel's cpumap: words of 32 bits, the highest first.
func cpuMap(cpus nvtopo.CPUSet) string {
	if len(cpus) == 0 {
		return ""
	}
	words := make([]uint32, cpus[len(cpus)-1]/32+1)
	for _, c := range cpus {
		words[c/32] |= 1 << (c % 32)
	}
	slices.Reverse(words)
	parts := make([]string, len(words))
	for i, w := range words {
		parts[i] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(parts, ",")
}
