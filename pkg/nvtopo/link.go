// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"fmt"
	"strconv"
	"strings"
)

// LinkKind is the medium of the fastest path between two accelerators. New vendors' fabrics are further
// kinds; nothing else in the package changes.
type LinkKind uint8

// The kinds of link. KindUnknown is the zero value and worse than any other.
const (
	KindUnknown LinkKind = iota
	KindPCIe
	KindNVLink
	KindXGMI
	KindHCCS
)

// fabricPrefix maps a fabric kind to the prefix of its class name; PCIe has none.
var fabricPrefix = map[LinkKind]string{KindNVLink: "NV", KindXGMI: "XGMI", KindHCCS: "HCCS"}

// PCIeLevel is the PCIe distance of two devices, in the terms of
// `nvidia-smi topo -m`, from nearest to farthest.
type PCIeLevel uint8

// The PCIe levels. PCIeUnknown is the zero value: the source gave no level.
const (
	PCIeUnknown PCIeLevel = iota
	PCIePIX               // at most a single PCIe bridge
	PCIePXB               // multiple PCIe bridges, no host bridge
	PCIePHB               // a PCIe host bridge
	PCIeNODE              // between host bridges of one NUMA node
	PCIeSYS               // across NUMA nodes, through the socket interconnect
)

var pcieNames = [...]string{"", "PIX", "PXB", "PHB", "NODE", "SYS"}

// String returns the level's name, empty when unknown.
func (l PCIeLevel) String() string {
	if int(l) < len(pcieNames) {
		return pcieNames[l]
	}
	return fmt.Sprintf("PCIeLevel(%d)", uint8(l))
}

// Rank returns the level's weight in the objective: PIX 0, PXB 1, PHB 2, NODE 3,
// SYS 4, and unknown 0.
func (l PCIeLevel) Rank() int64 {
	if l == PCIeUnknown {
		return 0
	}
	return int64(l) - 1
}

// ParsePCIeLevel parses a level's name; "SOC", which old drivers print, is SYS.
func ParsePCIeLevel(s string) (PCIeLevel, error) {
	if s == "SOC" {
		return PCIeSYS, nil
	}
	for i := 1; i < len(pcieNames); i++ {
		if pcieNames[i] == s {
			return PCIeLevel(i), nil
		}
	}
	return PCIeUnknown, fmt.Errorf("unknown PCIe level %q, want one of PIX, PXB, PHB, NODE, SYS, SOC", s)
}

// Class is the best path between two accelerators: a fabric with a number of links ("NV12"), or a PCIe
// level ("PIX"). The zero value is unknown.
type Class struct {
	Kind  LinkKind
	Lanes int       // links of a fabric; 0 for PCIe
	PCIe  PCIeLevel // level of a PCIe path; unknown for a fabric
}

// String returns the class as `nvidia-smi topo -m` prints it; "" when unknown.
func (c Class) String() string {
	if p, ok := fabricPrefix[c.Kind]; ok {
		return p + strconv.Itoa(c.Lanes)
	}
	return c.PCIe.String()
}

// IsFabric reports whether the class is a direct accelerator fabric such as NVLink.
func (c Class) IsFabric() bool { return c.Kind >= KindNVLink }

// rank returns the place of a class in the order from worst to best: unknown, SYS … PIX, then fabrics by
// number of links. Fabrics of different vendors are never in one graph.
func (c Class) rank() int {
	switch {
	case c.IsFabric():
		return 16 + c.Lanes
	case c.PCIe != PCIeUnknown:
		return int(PCIeSYS) + 1 - int(c.PCIe)
	}
	return 0
}

// AtLeast reports whether c is as good a class as floor or better. Every class
// is at least the zero class.
func (c Class) AtLeast(floor Class) bool { return c.rank() >= floor.rank() }

// maxLanes bounds the links of one pair: Rubin, the widest known GPU, has 36
// (notes of NVML API 13, NVML_NVLINK_MAX_LINKS).
const maxLanes = 64

// ParseClass parses a class name as `nvidia-smi topo -m` prints it, and the name of a fabric alone
// ("NVLINK", "XGMI", "HCCS"), which means one link.
func ParseClass(s string) (Class, error) {
	u := strings.ToUpper(strings.TrimSpace(s))
	if u == "NVLINK" || u == "NV" {
		return Class{Kind: KindNVLink, Lanes: 1}, nil
	}
	if l, err := ParsePCIeLevel(u); err == nil {
		return Class{Kind: KindPCIe, PCIe: l}, nil
	}
	for _, k := range []LinkKind{KindNVLink, KindXGMI, KindHCCS} {
		rest, ok := strings.CutPrefix(u, fabricPrefix[k])
		if !ok {
			continue
		}
		if rest == "" {
			return Class{Kind: k, Lanes: 1}, nil
		}
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 || n > maxLanes || rest[0] == '+' || rest[0] == '0' {
			return Class{}, fmt.Errorf("link class %q: want a number of links between 1 and %d after %q", s, maxLanes, fabricPrefix[k])
		}
		return Class{Kind: k, Lanes: n}, nil
	}
	return Class{}, fmt.Errorf("unknown link class %q, want NV#, XGMI#, HCCS#, PIX, PXB, PHB, NODE or SYS", s)
}

// Link is the connection of one pair of accelerators.
type Link struct {
	Class     Class
	PCIe      PCIeLevel // PCIe distance of the pair for every class, or unknown
	Switched  bool      // the fabric path goes through a switch
	Bandwidth int64     // kB/s in one direction
	Latency   int64     // ns
}
