// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// tree is a sysfs under construction; it keeps the first error.
type tree struct {
	root string
	err  error
}

func (t *tree) file(text string, path ...string) {
	name := filepath.Join(append([]string{t.root}, path...)...)
	t.err = errors.Join(t.err, writeFile(name, text+"\n"))
}

// link makes a symbolic link to a folder of the tree, both given from its root.
// It is absolute, so that bus/pci/devices can be mounted over the machine's own.
func (t *tree) link(target, path string) {
	name := filepath.Join(t.root, path)
	err := os.MkdirAll(filepath.Dir(name), 0o755) // as in writeFile
	if err == nil {
		err = os.Symlink(filepath.Join(t.root, target), name)
	}
	t.err = errors.Join(t.err, err)
}

// writeSysfs writes the parts of sysfs that the exporter reads: NUMA nodes, cores, and the PCI devices in
// a hierarchy that has the levels of the graph.
func writeSysfs(root string, g *nvtopo.Graph, gen nvtopo.PCIeGen) error {
	t := &tree{root: root}
	var ids nvtopo.CPUSet
	for i := range g.NUMANodes {
		ids = append(ids, g.NUMANodes[i].ID)
		t.numaNode(&g.NUMANodes[i])
	}
	t.file(nvtopo.NewCPUSet(ids...).String(), "devices/system/node/online")
	p := &pciTree{groups: bridges(g)}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		path := p.path(i, d.PCIBusID)
		t.device(path, d.PCIBusID, d.NUMANode)
		t.file(d.CPUs.String(), path, "local_cpulist")
		if speed := speeds()[gen]; speed != "" {
			t.file(speed, path, "max_link_speed")
		}
	}
	for k := range g.NICs {
		address := fmt.Sprintf("0000:fe:%02x.0", k)
		path := p.path(g.Len()+k, address)
		t.device(path, address, g.NICs[k].NUMANode)
		t.link(path, filepath.Join(path, "infiniband", g.NICs[k].Name, "device"))
		t.link(filepath.Join(path, "infiniband", g.NICs[k].Name), filepath.Join("class/infiniband", g.NICs[k].Name))
	}
	// NVSwitch: NVIDIA's bridge of class "other".
	path := filepath.Join("devices/pci0000:fd", switchAddress)
	t.device(path, switchAddress, nvtopo.UnknownNUMA)
	t.file("0x068000", path, "class")
	t.file("0x10de", path, "vendor")
	return t.err
}

// device writes the files of every PCI device.
func (t *tree) device(path, address string, numaNode int) {
	t.file(strconv.Itoa(numaNode), path, "numa_node")
	t.link(path, filepath.Join("bus/pci/devices", address))
}

func (t *tree) numaNode(n *nvtopo.NUMANode) {
	dir := "devices/system/node/node" + strconv.Itoa(n.ID)
	t.file(n.CPUs.String(), dir, "cpulist")
	t.file(fmt.Sprintf("Node %d MemTotal:       %d kB", n.ID, n.Memory>>10), dir, "meminfo")
	if len(n.Distances) > 0 {
		t.file(strings.Trim(fmt.Sprint(n.Distances), "[]"), dir, "distance")
	}
	for _, core := range n.Siblings {
		for _, cpu := range core {
			t.file(core.String(), "devices/system/cpu/cpu"+strconv.Itoa(cpu), "topology/thread_siblings_list")
		}
	}
}

// speeds returns PCIe generations as sysfs prints them.
func speeds() map[nvtopo.PCIeGen]string {
	return map[nvtopo.PCIeGen]string{3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}
}

// pciTree assigns devices their places below bridges.
type pciTree struct {
	groups [3][]int // host bridge, root port and switch of each device
}

// path returns the place of a device: its host bridge, its root port, its switch (the upstream port, and
// a downstream port of its own), the device.
func (p *pciTree) path(device int, address string) string {
	return filepath.Join("devices",
		fmt.Sprintf("pci0000:%02x", p.groups[0][device]),
		fmt.Sprintf("0000:a0:%02x.0", p.groups[1][device]),
		fmt.Sprintf("0000:a1:%02x.0", p.groups[2][device]),
		fmt.Sprintf("0000:a2:%02x.0", device),
		address)
}

// bridges puts the GPUs and, after them, the adapters into groups that share a host bridge, a root port,
// a switch. A group is named after its first device.
func bridges(g *nvtopo.Graph) [3][]int {
	var out [3][]int
	for k, level := range []nvtopo.PCIeLevel{nvtopo.PCIePHB, nvtopo.PCIePXB, nvtopo.PCIePIX} {
		group := make([]int, g.Len()+len(g.NICs))
		for i := range group {
			group[i] = i
		}
		join := func(a, b int, l nvtopo.PCIeLevel) {
			if l == nvtopo.PCIeUnknown || l > level {
				return
			}
			from, to := max(group[a], group[b]), min(group[a], group[b])
			for i := range group {
				if group[i] == from {
					group[i] = to
				}
			}
		}
		for i := range g.Len() {
			for j := range i {
				join(i, j, g.Link(i, j).PCIe)
			}
			for n := range g.NICs {
				join(i, g.Len()+n, g.NICs[n].Levels[i])
			}
		}
		out[k] = group
	}
	return out
}
