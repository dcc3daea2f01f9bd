// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "strings"

// kB/s in one GB/s; GB = 10^9 bytes.
const kBpsPerGBps = 1_000_000

// GBps converts kB/s to GB/s for people to read.
func GBps(kBps int64) float64 { return float64(kBps) / kBpsPerGBps }

// PCIeGen is a PCI Express generation; 0 is unknown and counts as 4.
type PCIeGen uint8

// pcieBandwidth is the bandwidth between two GPUs by PCIe generation and
// level, in kB/s and one direction. PIX is NCCL's effective x16 rate (src/graph/topo.h: 12
// for gen 3, doubling per generation); each further level costs 5 % of PIX, and
// SYS is what NCCL's planner charges for the socket link of that era (QPI 6, AMD 12, SPR 22).
var pcieBandwidth = map[PCIeGen][6]int64{
	3: {0, 12_000_000, 11_400_000, 10_800_000, 10_200_000, 6_000_000},
	4: {0, 24_000_000, 22_800_000, 21_600_000, 20_400_000, 12_000_000},
	5: {0, 48_000_000, 45_600_000, 43_200_000, 40_800_000, 22_000_000},
}

// pcieLatency is the latency of a PCIe path by level, in ns.
var pcieLatency = [...]int64{10_000, 3_000, 4_000, 5_000, 6_000, 10_000}

// Latency of a fabric link in ns, without and with a switch in between.
const (
	directLatency   = 1_000
	switchedLatency = 2_000
)

// PCIeBandwidth returns the bandwidth of a PCIe path in kB/s, one direction.
// Generations below 3 count as 3, above 5 as 5; unknown as 4. An unknown level
// counts as SYS, the worst.
func PCIeBandwidth(gen PCIeGen, level PCIeLevel) int64 {
	switch {
	case gen == 0:
		gen = 4
	case gen < 3:
		gen = 3
	case gen > 5:
		gen = 5
	}
	if level == PCIeUnknown || level > PCIeSYS {
		level = PCIeSYS
	}
	return pcieBandwidth[gen][level]
}

// nvlinkPerLink lists payload bandwidth per NVLink in kB/s, one direction, by
// a word of the GPU's product name; the first match wins. Sources: NVIDIA's
// data sheets as collected in stas00/ml-engineering (network), and
// `nvidia-smi nvlink -s` for the GeForce and workstation bridges (14.062).
var nvlinkPerLink = []struct {
	word string
	kBps int64
}{
	{"P100", 20_000_000},
	{"RTX 3090", 14_060_000},
	{"RTX A6000", 14_060_000},
	{"A6000", 14_060_000},
	{"A40", 14_060_000},
	{"B200", 50_000_000},
	{"B300", 50_000_000},
}

// NVLinkPerLink returns the bandwidth of one NVLink of a GPU model in kB/s, one
// direction: 25 GB/s (V100 to H200) unless the model is known to differ. A400
// and A4000, which have no NVLink, are not mistaken for A40.
func NVLinkPerLink(model string) int64 {
	fields := strings.FieldsFunc(strings.ToUpper(model), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	up := " " + strings.Join(fields, " ") + " "
	for _, e := range nvlinkPerLink {
		// GB200 and GB300 carry the Blackwell word inside a longer one.
		if strings.Contains(up, " "+e.word+" ") || strings.Contains(up, " G"+e.word+" ") {
			return e.kBps
		}
	}
	return 25_000_000
}

// NewLink builds the link of a pair from its class: bandwidth and latency come
// from the published constants. perLink is the bandwidth of one fabric link in
// kB/s and is ignored for PCIe; pcie is the pair's PCIe level where the source
// knows it.
func NewLink(class Class, pcie PCIeLevel, gen PCIeGen, perLink int64, switched bool) Link {
	l := Link{Class: class, PCIe: pcie, Switched: switched}
	if class.IsFabric() {
		l.Bandwidth = int64(class.Lanes) * perLink
		l.Latency = directLatency
		if switched {
			l.Latency = switchedLatency
		}
		return l
	}
	level := class.PCIe
	if pcie == PCIeUnknown {
		l.PCIe = level
	}
	l.Bandwidth = PCIeBandwidth(gen, level)
	l.Latency = pcieLatency[min(int(level), len(pcieLatency)-1)]
	return l
}
