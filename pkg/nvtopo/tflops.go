// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "strings"

// tflops lists the compute speed of GPUs by words of the product name; the first match wins. Sources: the
// makers' data sheets, dense BF16 on tensor cores, or FP16 for GPUs without BF16. NVIDIA's sheets print
// twice as much where they include sparsity.
var tflops = []struct {
	words string
	speed float64
}{
	{"GB300", 2500},
	{"GB200", 2500},
	{"B300", 2250},
	{"B200", 2250},
	{"B100", 1750},
	{"GH200", 989},
	{"H200 NVL", 835},
	{"H200", 989},
	{"H100 PCIE", 756},
	{"H100 NVL", 835},
	{"H100", 989},
	{"H800", 989},
	{"H20", 148},
	{"A100", 312},
	{"A800", 312},
	{"A30", 165},
	{"A40", 150},
	{"A10", 125},
	{"A10G", 70},
	{"A16", 18}, // one of the four GPUs of a card
	{"A2", 18},
	{"A6000", 155},
	{"L40S", 362},
	{"L40", 181},
	{"L4", 121},
	{"V100 PCIE", 112},
	{"V100", 125},
	{"T4", 65},
	{"P100", 21},
	{"P40", 12}, // FP32: its FP16 is slower
	{"P4", 5.5},
	{"M60", 4.8},
	{"K80", 4.4},
	{"RTX 4090", 165},
	{"RTX 3090", 71},
	{"RTX 6000 ADA", 364},
	{"MI350X", 2300},
	{"MI355X", 2500},
	{"MI300X", 1307},
	{"MI325X", 1307},
	{"MI250X", 191.5}, // one of the two dies of a package, each of which is a GPU
	{"MI250", 181},
	{"MI210", 181},
	{"MI100", 185},
	{"910B3", 313},
}

// An unlisted GPU has perGiB for each GiB of memory, about the median of the listed ones; without a known
// memory it is faster than all.
const (
	perGiB        = 7
	unknownTFLOPS = 1e6
)

// TFLOPS estimates the GPU's compute speed from its product name, or else from its memory.
func (d *GPU) TFLOPS() float64 {
	name := words(d.Model)
	for _, t := range tflops {
		if strings.Contains(name, " "+t.words+" ") {
			return t.speed
		}
	}
	if d.Memory > 0 {
		return perGiB * float64(d.Memory) / (1 << 30)
	}
	return unknownTFLOPS
}

// TFLOPS returns the compute speed of the GPU at a position; see GPU.TFLOPS.
func (g *Graph) TFLOPS(i int) float64 { return g.tflops[i] }

// words returns a product name in upper case, with one blank around each word.
func words(model string) string {
	fields := strings.FieldsFunc(strings.ToUpper(model), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	return " " + strings.Join(fields, " ") + " "
}
