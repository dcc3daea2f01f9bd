// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// LibraryName is the file name of the library in the folder that `make fakedriver`
// fills, and the name by which programs load it.
const LibraryName = "libnvidia-ml.so.1"

// Version is the version that the driver reports.
const Version = "580.95.05"

// Driver is a machine written to a folder.
type Driver struct {
	Faults *Faults
	dir    string
	gpus   int
}

// Write writes a machine to a folder, which it creates: the graph, with slots of the given PCIe
// generation.
func Write(dir string, g *nvtopo.Graph, gen nvtopo.PCIeGen) (*Driver, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the machine's folder: %w", err)
	}
	text, err := describe(g, gen)
	if err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	if err := writeSysfs(filepath.Join(dir, "sys"), g, gen); err != nil {
		return nil, fmt.Errorf("write sysfs: %w", err)
	}
	d := &Driver{dir: dir, gpus: g.Len(), Faults: &Faults{path: filepath.Join(dir, "faults.txt")}}
	if err := writeFile(d.machine(), text); err != nil {
		return nil, fmt.Errorf("write the machine: %w", err)
	}
	return d, d.Faults.Set()
}

func (d *Driver) machine() string { return filepath.Join(d.dir, "machine.txt") }

// Sysfs returns the root of the machine's sysfs, for --sysfs-root.
func (d *Driver) Sysfs() string { return filepath.Join(d.dir, "sys") }

// Env returns the variables by which the library finds the machine and the faults.
func (d *Driver) Env() []string {
	return []string{"FAKENVML_MACHINE=" + d.machine(), "FAKENVML_FAULTS=" + d.Faults.path}
}

// capability returns the CUDA compute capability of a product (developer.nvidia.com/cuda-gpus).
func capability(model string) (major, minor int, err error) {
	for _, c := range []struct {
		part         string
		major, minor int
	}{
		{"P100", 6, 0},
		{"V100", 7, 0},
		{"A100", 8, 0},
		{"A6000", 8, 6},
		{"L40S", 8, 9},
		{"4090", 8, 9},
		{"H100", 9, 0},
		{"H200", 9, 0},
		{"B200", 10, 0},
	} {
		if strings.Contains(model, c.part) {
			return c.major, c.minor, nil
		}
	}
	return 0, 0, fmt.Errorf("the compute capability of %q is not known", model)
}

// ancestor returns the value of nvmlGpuTopologyLevel_t (nvml.h) for a PCIe level.
func ancestor(l nvtopo.PCIeLevel) int {
	return map[nvtopo.PCIeLevel]int{
		nvtopo.PCIePIX: 10, nvtopo.PCIePXB: 20, nvtopo.PCIePHB: 30, nvtopo.PCIeNODE: 40, nvtopo.PCIeSYS: 50,
	}[l]
}

// The far ends of links to a switch. From Blackwell on drivers report no address.
const (
	switchAddress = "0000:fd:00.0"
	hiddenAddress = "FFFFFFFF:FF:FF.0"
	// The first compute capabilities with switches that need a fabric manager's
	// registration (Hopper), and with hidden switches (Blackwell).
	hopper, blackwell = 9, 10
)

// describe returns the graph in the form that lib/machine.c reads.
func describe(g *nvtopo.Graph, gen nvtopo.PCIeGen) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "driver %s\n", Version)
	majors := make([]int, g.Len())
	for i := range g.GPUs {
		d := &g.GPUs[i]
		major, minor, err := capability(d.Model)
		if err != nil {
			return "", fmt.Errorf("GPU %d: %w", i, err)
		}
		majors[i] = major
		clique := 0
		if major >= hopper && switchLinks(g, i) > 0 {
			clique = 1
		}
		fmt.Fprintf(&out, "gpu %d %s %s %d %d %d %d %d %s\n", i, d.UUID, nvmlAddress(d.PCIBusID), d.Memory, major, minor, gen, clique, d.Model)
	}
	for i := range g.GPUs {
		for j := range i {
			fmt.Fprintf(&out, "ancestor %d %d %d\n", i, j, ancestor(pcieLevel(g, i, j)))
		}
	}
	for i := range g.GPUs {
		far := nvmlAddress(switchAddress)
		if majors[i] >= blackwell {
			far = hiddenAddress
		}
		link := 0
		for range switchLinks(g, i) {
			fmt.Fprintf(&out, "nvlink %d %d switch %s\n", i, link, far)
			link++
		}
		for j := range g.GPUs {
			if l := g.Link(i, j); i != j && l.Class.Kind == nvtopo.KindNVLink && !l.Switched {
				for range l.Class.Lanes {
					fmt.Fprintf(&out, "nvlink %d %d gpu %s\n", i, link, nvmlAddress(g.GPUs[j].PCIBusID))
					link++
				}
			}
		}
	}
	return out.String(), nil
}

// switchLinks returns how many links a GPU has to switches: all of them serve each peer.
func switchLinks(g *nvtopo.Graph, i int) int {
	n := 0
	for j := range g.GPUs {
		if l := g.Link(i, j); l.Switched {
			n = max(n, l.Class.Lanes)
		}
	}
	return n
}

// pcieLevel returns the level of two GPUs. A driver always knows it; where the graph does not, it is
// derived from their NUMA nodes.
func pcieLevel(g *nvtopo.Graph, i, j int) nvtopo.PCIeLevel {
	switch l := g.Link(i, j); {
	case l.PCIe != nvtopo.PCIeUnknown:
		return l.PCIe
	case g.GPUs[i].NUMANode == g.GPUs[j].NUMANode && g.GPUs[i].NUMANode != nvtopo.UnknownNUMA:
		return nvtopo.PCIeNODE
	default:
		return nvtopo.PCIeSYS
	}
}

// nvmlAddress returns a PCI address as drivers print it: with a domain of eight digits and in capitals.
func nvmlAddress(address string) string {
	domain, rest, _ := strings.Cut(address, ":")
	return strings.ToUpper(fmt.Sprintf("%08s:%s", domain, rest))
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // read by programs of other users
		return fmt.Errorf("make a folder: %w", err)
	}
	return os.WriteFile(path, []byte(text), 0o644) // likewise
}
