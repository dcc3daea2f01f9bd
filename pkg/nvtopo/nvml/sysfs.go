// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// sysfs reads the kernel's view of the machine under a root that is /sys of the host at its mount point
// in the container.
type sysfs struct{ root string }

func (s sysfs) read(elem ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(append([]string{s.root}, elem...)...))
	return strings.TrimSpace(string(b)), err
}

// numaNodes lists the online NUMA nodes in ascending order. A machine without
// the directory has a kernel without NUMA, which is one node with all CPUs.
func (s sysfs) numaNodes() ([]nvtopo.NUMANode, error) {
	const dir = "devices/system/node"
	online, err := s.read(dir, "online")
	if errors.Is(err, fs.ErrNotExist) {
		return s.flatNode()
	}
	if err != nil {
		return nil, fmt.Errorf("online NUMA nodes: %w", err)
	}
	ids, err := nvtopo.ParseCPUList(online) // the same list format
	if err != nil {
		return nil, fmt.Errorf("online NUMA nodes: %w", err)
	}
	nodes := make([]nvtopo.NUMANode, 0, len(ids))
	for _, id := range ids {
		n, err := s.numaNode(filepath.Join(dir, "node"+strconv.Itoa(id)), id)
		if err != nil {
			return nil, fmt.Errorf("NUMA node %d: %w", id, err)
		}
		nodes = append(nodes, n)
	}
	for i := range nodes {
		if len(nodes[i].Distances) != len(nodes) {
			nodes[i].Distances = nil // nodes came or went during the reading: no distances rather than misplaced ones
		}
	}
	return nodes, nil
}

func (s sysfs) numaNode(dir string, id int) (nvtopo.NUMANode, error) {
	n := nvtopo.NUMANode{ID: id}
	list, err := s.read(dir, "cpulist")
	if err != nil {
		return n, err
	}
	if n.CPUs, err = nvtopo.ParseCPUList(list); err != nil {
		return n, err
	}
	if n.Siblings, err = s.siblings(n.CPUs); err != nil {
		return n, err
	}
	if n.Memory, err = s.memory(dir); err != nil {
		return n, err
	}
	row, err := s.read(dir, "distance")
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	for f := range strings.FieldsSeq(row) {
		d, err := strconv.Atoi(f)
		if err != nil {
			return n, fmt.Errorf("distance: %q: want whole numbers", row)
		}
		n.Distances = append(n.Distances, d)
	}
	return n, nil
}

func (s sysfs) flatNode() ([]nvtopo.NUMANode, error) {
	list, err := s.read("devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("online CPUs: %w", err)
	}
	cpus, err := nvtopo.ParseCPUList(list)
	if err != nil {
		return nil, fmt.Errorf("online CPUs: %w", err)
	}
	sib, err := s.siblings(cpus)
	if err != nil {
		return nil, err
	}
	return []nvtopo.NUMANode{{ID: 0, CPUs: cpus, Siblings: sib}}, nil
}

// siblings groups CPUs by core, in the order of each core's first CPU. A CPU
// without a topology directory is offline; a machine without any (some virtual
// ones) yields none.
func (s sysfs) siblings(cpus nvtopo.CPUSet) ([]nvtopo.CPUSet, error) {
	var cores []nvtopo.CPUSet
	var seen nvtopo.CPUSet
	for _, c := range cpus {
		if seen.Has(c) {
			continue
		}
		list, err := s.read("devices/system/cpu", "cpu"+strconv.Itoa(c), "topology/thread_siblings_list")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("siblings of CPU %d: %w", c, err)
		}
		core, err := nvtopo.ParseCPUList(list)
		if err != nil {
			return nil, fmt.Errorf("siblings of CPU %d: %w", c, err)
		}
		cores = append(cores, core)
		seen = seen.Union(core)
	}
	return cores, nil
}

// memory returns a NUMA node's total memory in bytes. The lines are "Node 0 MemTotal:  131919120 kB",
// where kB is 1024 bytes.
func (s sysfs) memory(dir string) (int64, error) {
	text, err := s.read(dir, "meminfo")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || f[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("meminfo: %q: want a whole number of kB", sc.Text())
		}
		return kib * 1024, nil
	}
	return 0, nil
}

// certainNode returns the NUMA node of a device whose own file has -1: known only when a single node has
// CPUs, so there is no choice.
func certainNode(nodes []nvtopo.NUMANode) int {
	found := nvtopo.UnknownNUMA
	for i := range nodes {
		if len(nodes[i].CPUs) == 0 {
			continue
		}
		if found != nvtopo.UnknownNUMA {
			return nvtopo.UnknownNUMA
		}
		found = nodes[i].ID
	}
	return found
}

// cpuNode maps a device's NUMA node to the node of the CPUs nearest to it: itself when it has CPUs, else
// the one nearest by distance, and unknown when two are equally near or the kernel's node is not in the
// list.
func cpuNode(nodes []nvtopo.NUMANode, id int) int {
	at := slices.IndexFunc(nodes, func(n nvtopo.NUMANode) bool { return n.ID == id })
	if at < 0 {
		return certainNode(nodes)
	}
	if len(nodes[at].CPUs) > 0 {
		return id
	}
	best, node := 0, nvtopo.UnknownNUMA
	for i, d := range nodes[at].Distances {
		switch {
		case len(nodes[i].CPUs) == 0:
		case best == 0 || d < best:
			best, node = d, nodes[i].ID
		case d == best:
			node = nvtopo.UnknownNUMA
		}
	}
	if node == nvtopo.UnknownNUMA {
		return certainNode(nodes)
	}
	return node
}
