// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"slices"
	"strconv"
	"strings"
)

// kBpsPerGBps is the kB/s in one GB/s; GB = 10^9 bytes.
const kBpsPerGBps = 1_000_000

// GBps converts kB/s to GB/s for printing.
func GBps(kBps int64) float64 { return float64(kBps) / kBpsPerGBps }

// FormatGBps formats kB/s as GB/s with the fewest digits that are exact: "25", "12.5".
func FormatGBps(kBps int64) string { return FormatDecimal(GBps(kBps)) }

// FormatDecimal formats a number with the fewest digits that are exact and without an exponent.
func FormatDecimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// FormatMillis formats milliseconds with three significant digits, and from 100 on as whole milliseconds:
// "3.5 ms", "12346 ms".
func FormatMillis(ms float64) string {
	if ms >= 100 {
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(ms, 'g', 3, 64) + " ms"
}

// PCIeGen is a PCI Express generation; 0 is unknown and treated as 4.
type PCIeGen uint8

// pcieBandwidth is the bandwidth between two GPUs by PCIe generation and level, in kB/s and one
// direction. PIX is NCCL's effective x16 rate (src/graph/topo.h: 12 for gen 3, doubling per generation);
// each further level costs 5 % of PIX, and SYS is the rate of NCCL's planner for the socket link of that
// era (QPI 6, AMD 12, SPR 22).
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

// PCIeBandwidth returns the bandwidth of a PCIe path in kB/s, one direction. Generations below 3 are
// treated as 3, above 5 as 5, unknown as 4. An unknown level is treated as SYS, the worst.
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
	up := words(model)
	for _, e := range nvlinkPerLink {
		// GB200 and GB300 carry the Blackwell word inside a longer one.
		if strings.Contains(up, " "+e.word+" ") || strings.Contains(up, " G"+e.word+" ") {
			return e.kBps
		}
	}
	return 25_000_000
}

// fabricPerLink lists the payload bandwidth of one link of the other vendors'
// fabrics in kB/s, one direction, by the beginning of a word of the product name;
// the first match wins, and the last of a kind is for all other models.
//
// XGMI, 16 lanes of 2 bytes a transfer: 23 GT/s to MI100, 25 GT/s for MI200 (AMD's
// pages on both microarchitectures), 32 GT/s for MI300 and MI325, 38.4 GT/s for
// MI350 (128 and 153.6 GB/s in both directions in AMD's data sheets).
//
// HCCS: 240 Gbit/s for the first Ascend 910 (Huawei, Hot Chips 2019); 56 GB/s in
// both directions from 910B on, of whose 7 links 392 GB/s are published, and of a
// die of 910C, whose 7 links of 224 Gbit/s make 196 GB/s (Huawei's paper on
// CloudMatrix384, arXiv 2506.12708).
var fabricPerLink = map[LinkKind][]struct {
	word string
	kBps int64
}{
	KindXGMI: {
		{"MI50", 46_000_000},
		{"MI60", 46_000_000},
		{"MI100", 46_000_000},
		{"MI30", 64_000_000},
		{"MI32", 64_000_000},
		{"MI35", 76_800_000},
		{"", 50_000_000},
	},
	KindHCCS: {
		{"910A", 30_000_000}, {"910PRO", 30_000_000}, {"910PREMIUM", 30_000_000}, {"", 28_000_000},
	},
}

// FabricPerLink returns the bandwidth of one link of a fabric in kB/s, one
// direction, for an accelerator's product name, which may be empty. PCIe has no
// such links: 0.
func FabricPerLink(kind LinkKind, model string) int64 {
	if kind == KindNVLink {
		return NVLinkPerLink(model)
	}
	words := strings.FieldsFunc(strings.ToUpper(model), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	for _, e := range fabricPerLink[kind] {
		if e.word == "" || slices.ContainsFunc(words, func(w string) bool {
			return strings.HasPrefix(strings.TrimPrefix(w, "ASCEND"), e.word)
		}) {
			return e.kBps
		}
	}
	return 0
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

// Over returns the link that passes over the given number of hops of this link. The accelerators between
// forward the traffic over links that carry their own as well, so each hop divides the bandwidth;
// latencies add up.
func (l Link) Over(hops int) Link {
	l.Bandwidth /= int64(hops)
	l.Latency *= int64(hops)
	return l
}
