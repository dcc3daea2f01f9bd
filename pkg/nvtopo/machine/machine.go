// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

//go:embed data/*.yaml
var data embed.FS

// Machine is one entry of the catalogue, as in its file.
type Machine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Source is where the link matrix was published.
	Source string `json:"source"`

	// Model is the product name of all GPUs.
	Model string `json:"model"`
	// GPUMemoryMiB is the memory of one GPU as nvidia-smi prints it.
	GPUMemoryMiB int64 `json:"gpuMemoryMiB"`
	// PCIeGen is the generation of the GPUs' slots.
	PCIeGen nvtopo.PCIeGen `json:"pcieGen"`
	// Resource is the extended resource that the vendor's device plugin offers; empty for NVIDIA's.
	Resource string `json:"resource,omitempty"`
	// Switched reports that all NVLink paths go through switches.
	Switched bool `json:"switched,omitempty"`

	GPUs      []GPU      `json:"gpus"`
	NUMANodes []NUMANode `json:"numaNodes"`
	// ThreadsPerCore hyper-threads of a core have CPU numbers ThreadStride apart.
	ThreadsPerCore int `json:"threadsPerCore"`
	ThreadStride   int `json:"threadStride,omitempty"`

	// Links is the matrix of `nvidia-smi topo -m`, one row per GPU.
	Links []string `json:"links"`
	// Hops is the number of fabric links that the path of each pair takes one after
	// the other, where some take more than one. PCIe paths have 1.
	Hops []string `json:"hops,omitempty"`
	// PCIe is the matrix of `nvidia-smi topo -mp`, where known: the PCIe levels
	// also of pairs with NVLink; "-" is an unknown level.
	PCIe []string `json:"pcie,omitempty"`
	NICs []NIC    `json:"nics,omitempty"`
}

// GPU is the position of one GPU.
type GPU struct {
	PCIBusID string `json:"pciBusID"`
	NUMANode int    `json:"numaNode"`
}

// NUMANode is one NUMA node.
type NUMANode struct {
	ID        int    `json:"id"`
	CPUs      string `json:"cpus"` // in the kernel's list format
	MemoryGiB int64  `json:"memoryGiB"`
	Distances []int  `json:"distances,omitempty"` // the SLIT's row
}

// NIC is one RDMA adapter.
type NIC struct {
	Name     string `json:"name"`
	NUMANode int    `json:"numaNode"`
	Levels   string `json:"levels"` // one per GPU
}

// Names lists the machines of the catalogue in alphabetical order.
func Names() []string {
	entries, err := data.ReadDir("data")
	if err != nil {
		return nil // the folder is compiled in
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Lookup returns the machine of the given name. The error for an unknown name
// lists those that exist.
func Lookup(name string) (*Machine, error) {
	names := Names()
	if !slices.Contains(names, name) {
		return nil, fmt.Errorf("no machine %q; the catalogue has %s", name, strings.Join(names, ", "))
	}
	raw, err := data.ReadFile(path.Join("data", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading machine %q: %w", name, err)
	}
	m := &Machine{}
	if err := yaml.UnmarshalStrict(raw, m); err != nil {
		return nil, fmt.Errorf("machine %q: %w", name, err)
	}
	if m.Name != name {
		return nil, fmt.Errorf("machine %q calls itself %q", name, m.Name)
	}
	return m, nil
}

// Graph returns the machine's link graph. Its UUIDs depend on the machine's name only.
func (m *Machine) Graph() (*nvtopo.Graph, error) { return m.GraphFor("") }

// GraphFor returns the machine's link graph as that of the named node: each
// node of a simulated cluster has GPUs with UUIDs of its own.
func (m *Machine) GraphFor(nodeName string) (*nvtopo.Graph, error) {
	g, err := m.build(nodeName)
	if err != nil {
		return nil, fmt.Errorf("machine %q: %w", m.Name, err)
	}
	return g, nil
}

func (m *Machine) build(nodeName string) (*nvtopo.Graph, error) {
	nodes, err := m.numaNodes()
	if err != nil {
		return nil, err
	}
	gpus := make([]nvtopo.GPU, len(m.GPUs))
	for i, d := range m.GPUs {
		k := slices.IndexFunc(nodes, func(n nvtopo.NUMANode) bool { return n.ID == d.NUMANode })
		if k < 0 {
			return nil, fmt.Errorf("GPU %d is on NUMA node %d, which is not listed", i, d.NUMANode)
		}
		gpus[i] = nvtopo.GPU{
			UUID: m.uuid(nodeName, i), Index: i, PCIBusID: d.PCIBusID, Model: m.Model,
			Memory: m.GPUMemoryMiB << 20, NUMANode: d.NUMANode, CPUs: nodes[k].CPUs,
		}
	}
	links, err := m.links()
	if err != nil {
		return nil, err
	}
	nics, err := m.nics()
	if err != nil {
		return nil, err
	}
	return nvtopo.NewGraph(gpus, nodes, nics, links)
}

// numaNodes returns the NUMA nodes with the hyper-threads of each core.
func (m *Machine) numaNodes() ([]nvtopo.NUMANode, error) {
	out := make([]nvtopo.NUMANode, len(m.NUMANodes))
	for i, n := range m.NUMANodes {
		cpus, err := nvtopo.ParseCPUList(n.CPUs)
		if err != nil {
			return nil, fmt.Errorf("NUMA node %d: %w", n.ID, err)
		}
		out[i] = nvtopo.NUMANode{
			ID: n.ID, CPUs: cpus, Siblings: m.siblings(cpus), Memory: n.MemoryGiB << 30, Distances: n.Distances,
		}
	}
	return out, nil
}

// siblings groups CPUs by core. x86 numbers the second threads of all cores
// after all first ones (stride = number of cores), POWER the threads of a core
// in a row (stride 1).
func (m *Machine) siblings(cpus nvtopo.CPUSet) []nvtopo.CPUSet {
	var out []nvtopo.CPUSet
	for _, c := range cpus {
		core := make([]int, 0, m.ThreadsPerCore)
		for k := range m.ThreadsPerCore {
			core = append(core, c+k*m.ThreadStride)
		}
		first := c/max(m.ThreadStride, 1)%max(m.ThreadsPerCore, 1) == 0
		if first {
			out = append(out, nvtopo.NewCPUSet(core...))
		}
	}
	return out
}

// links parses both matrices.
func (m *Machine) links() (map[[2]int]nvtopo.Link, error) {
	classes, err := matrix("links", m.Links, len(m.GPUs))
	if err != nil {
		return nil, err
	}
	var levels [][]string
	if len(m.PCIe) > 0 {
		if levels, err = matrix("pcie", m.PCIe, len(m.GPUs)); err != nil {
			return nil, err
		}
	}
	hops, err := m.hops()
	if err != nil {
		return nil, err
	}
	out := map[[2]int]nvtopo.Link{}
	for i := range m.GPUs {
		for j := range m.GPUs {
			if i == j {
				continue
			}
			level := "-"
			if len(levels) > 0 {
				level = levels[i][j]
			}
			l, err := m.link(classes[i][j], level, hops(i, j))
			if err != nil {
				return nil, fmt.Errorf("GPUs %d and %d: %w", i, j, err)
			}
			out[[2]int{i, j}] = l
		}
	}
	return out, nil
}

// link returns the link of a pair: its class, its PCIe level ("-" where unknown) and, for a fabric, the
// number of its hops.
func (m *Machine) link(name, pcie string, hops int) (nvtopo.Link, error) {
	class, err := nvtopo.ParseClass(name)
	if err != nil {
		return nvtopo.Link{}, err
	}
	level := nvtopo.PCIeUnknown
	if pcie != "-" {
		if level, err = nvtopo.ParsePCIeLevel(pcie); err != nil {
			return nvtopo.Link{}, err
		}
	}
	perLink := nvtopo.FabricPerLink(class.Kind, m.Model)
	if class.IsFabric() {
		return nvtopo.NewLink(class, level, m.PCIeGen, perLink, m.Switched).Over(hops), nil
	}
	if level != nvtopo.PCIeUnknown && level != class.PCIe {
		return nvtopo.Link{}, fmt.Errorf("link %s, but PCIe level %s", class, level)
	}
	return nvtopo.NewLink(class, level, m.PCIeGen, perLink, false), nil
}

// hops returns a function for the number of consecutive fabric links that join two GPUs: 1 where the file
// gives none.
func (m *Machine) hops() (func(i, j int) int, error) {
	if len(m.Hops) == 0 {
		return func(int, int) int { return 1 }, nil
	}
	rows, err := matrix("hops", m.Hops, len(m.GPUs))
	if err != nil {
		return nil, err
	}
	n := make([][]int, len(rows))
	for i, row := range rows {
		n[i] = make([]int, len(row))
		for j, s := range row {
			if i == j {
				continue
			}
			if n[i][j], err = strconv.Atoi(s); err != nil || n[i][j] < 1 {
				return nil, fmt.Errorf("hops of GPUs %d and %d: %q is not a number from 1 on", i, j, s)
			}
		}
	}
	return func(i, j int) int { return n[i][j] }, nil
}

// matrix splits the rows of an n x n matrix with X on its diagonal.
func matrix(what string, rows []string, n int) ([][]string, error) {
	if len(rows) != n {
		return nil, fmt.Errorf("%s: %d rows for %d GPUs", what, len(rows), n)
	}
	out := make([][]string, n)
	for i, row := range rows {
		out[i] = strings.Fields(row)
		if len(out[i]) != n || out[i][i] != "X" {
			return nil, fmt.Errorf("%s: row %d must have %d cells and X on the diagonal", what, i, n)
		}
	}
	return out, nil
}

func (m *Machine) nics() ([]nvtopo.NIC, error) {
	var out []nvtopo.NIC
	for _, n := range m.NICs {
		nic := nvtopo.NIC{Name: n.Name, NUMANode: n.NUMANode}
		for s := range strings.FieldsSeq(n.Levels) {
			level, err := nvtopo.ParsePCIeLevel(s)
			if err != nil {
				return nil, fmt.Errorf("adapter %s: %w", n.Name, err)
			}
			nic.Levels = append(nic.Levels, level)
		}
		if len(nic.Levels) != len(m.GPUs) {
			return nil, fmt.Errorf("adapter %s: %d levels for %d GPUs", n.Name, len(nic.Levels), len(m.GPUs))
		}
		out = append(out, nic)
	}
	return out, nil
}

// uuid returns a stable UUID in the vendor's form. Version 8 of RFC 9562 is for
// such made-up layouts; no real GPU can have it by chance of a random version 4.
func (m *Machine) uuid(nodeName string, index int) string {
	h := sha256.New()
	for _, s := range []string{"nvtopo machine", m.Name, nodeName} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // a hash never fails to write
	}
	_ = binary.Write(h, binary.BigEndian, int64(index))
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])
}
