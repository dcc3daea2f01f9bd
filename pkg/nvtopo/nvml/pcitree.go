// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// pciPlace is the position of a PCI device.
type pciPlace struct {
	path []string // host bridge, root port, …, the device itself
	numa int      // as the kernel reports it, UnknownNUMA when it does not
	cpus nvtopo.CPUSet
	gen  nvtopo.PCIeGen
}

func (s sysfs) pciDir(a pciAddr) string {
	return filepath.Join(s.root, "bus/pci/devices", a.String())
}

// place reads a device's position. Without symbolic links (a partial copy of sysfs) the path has the
// device alone and only NUMA locality is known.
func (s sysfs) place(dir string) (pciPlace, error) {
	p := pciPlace{numa: nvtopo.UnknownNUMA}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return p, err
	}
	p.path = pciPath(real)
	if text, err := readTrimmed(real, "numa_node"); err == nil {
		if p.numa, err = strconv.Atoi(text); err != nil {
			return p, fmt.Errorf("numa_node: %q: want a whole number", text)
		}
	}
	p.numa = max(p.numa, nvtopo.UnknownNUMA)
	if text, err := readTrimmed(real, "local_cpulist"); err == nil {
		if p.cpus, err = nvtopo.ParseCPUList(text); err != nil {
			return p, fmt.Errorf("local_cpulist: %w", err)
		}
	}
	if text, err := readTrimmed(real, "max_link_speed"); err == nil {
		p.gen = pcieGenOf(text)
	}
	return p, nil
}

func readTrimmed(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err
}

// pciPath keeps the PCI part of a resolved sysfs path: the host bridge ("pci0000:80") and the addresses
// below it.
func pciPath(real string) []string {
	var path []string
	for elem := range strings.SplitSeq(filepath.ToSlash(real), "/") {
		switch {
		case strings.HasPrefix(elem, "pci") && strings.Contains(elem, ":"):
			path = []string{elem} // the part before it (platform devices) does not matter
		case len(path) > 0:
			if _, err := parsePCIAddr(elem); err == nil {
				path = append(path, elem)
			}
		}
	}
	return path
}

// pcieGenOf parses sysfs's "32.0 GT/s PCIe"; 0 for an unknown rate.
func pcieGenOf(speed string) nvtopo.PCIeGen {
	rate, _, _ := strings.Cut(speed, " ")
	gen := map[string]nvtopo.PCIeGen{"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}
	return gen[rate]
}

// level returns the PCIe distance of two devices by their places: the length of the common bridge path,
// and beyond the host bridge their NUMA nodes. Two devices under one switch differ in downstream port and
// device, so up to two steps below the common bridge are one switch.
func level(a, b pciPlace) nvtopo.PCIeLevel {
	common := 0
	for common < len(a.path) && common < len(b.path) && a.path[common] == b.path[common] {
		common++
	}
	below := max(len(a.path), len(b.path)) - common
	switch {
	case common > 1 && below <= 2:
		return nvtopo.PCIePIX
	case common > 1:
		return nvtopo.PCIePXB
	case common == 1:
		return nvtopo.PCIePHB
	case a.numa == nvtopo.UnknownNUMA || b.numa == nvtopo.UnknownNUMA:
		return nvtopo.PCIeUnknown
	case a.numa == b.numa:
		return nvtopo.PCIeNODE
	}
	return nvtopo.PCIeSYS
}

// isNVSwitch reports whether an address is an NVSwitch: NVIDIA's bridge of class
// "other" (0680). POWER9's NVLink bridges have that class and IBM's vendor id.
func (s sysfs) isNVSwitch(a pciAddr) bool {
	class, err1 := readTrimmed(s.pciDir(a), "class")
	vendor, err2 := readTrimmed(s.pciDir(a), "vendor")
	return errors.Join(err1, err2) == nil && strings.HasPrefix(class, "0x0680") && vendor == "0x10de"
}

// nics lists the RDMA adapters and their place, in the order of their names. Adapters that are no PCI
// devices (soft RoCE) are left out.
func (s sysfs) nics() ([]string, []pciPlace, error) {
	const dir = "class/infiniband"
	entries, err := os.ReadDir(filepath.Join(s.root, dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("RDMA adapters: %w", err)
	}
	var names []string
	var places []pciPlace
	for _, e := range entries {
		p, err := s.place(filepath.Join(s.root, dir, e.Name(), "device"))
		if err != nil || len(p.path) == 0 {
			continue
		}
		names, places = append(names, e.Name()), append(places, p)
	}
	return names, places, nil
}
