// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Sheet holds the data sheet values of a GPU.
type Sheet struct {
	Model  string  // a part of the model's name as the driver prints it
	TFLOPS float64 // dense BF16, or FP16 of a GPU without BF16
}

// sheets are the makers' public data sheets: dense tensor throughput, half of NVIDIA's figures with
// sparsity. A name comes before its own substrings.
var sheets = []Sheet{
	{"GB300", 2500},
	{"GB200", 2500},
	{"B300", 2250},
	{"B200", 2250},
	{"B100", 1750},
	{"GH200", 989},
	{"H200 NVL", 835},
	{"H200", 989},
	{"H100 PCIe", 756},
	{"H100 NVL", 835},
	{"H100", 989},
	{"H20", 148},
	{"A100", 312},
	{"A800", 312},
	{"A30", 165},
	{"A40", 150},
	{"A10", 125},
	{"A6000", 155},
	{"L40S", 362},
	{"L40", 181},
	{"L4", 121},
	{"V100-PCIE", 112},
	{"V100", 125},
	{"T4", 65},
	{"P100", 19},
	{"RTX 4090", 165},
	{"MI250X", 191.5}, // one of the two dies of a package, each of which is a GPU
	{"910B3", 313},
}

// SheetOf returns the data sheet of a model.
func SheetOf(model string) (Sheet, error) {
	i := slices.IndexFunc(sheets, func(s Sheet) bool { return strings.Contains(model, s.Model) })
	if i < 0 {
		return Sheet{}, fmt.Errorf("no data sheet of GPU model %q", model)
	}
	return sheets[i], nil
}

// Reference is the hardware of a job's duration in a trace: GPUs of an HGX H100, of which every pair has
// 18 NVLinks. A job that communicates spends Share of its time there in all-reduces.
const (
	referenceTFLOPS    = 989
	referenceBandwidth = 450e9 // bytes/s
	referenceLatency   = 1e-6  // s
	// Share is an assumption: collectives that nothing hides take a tenth of the time where links
	// are fast. With it a job of eight GPUs runs 7 times as long on PCIe at 10 GB/s.
	Share = 0.1
)

// Slowdown returns the ratio of a pod's run on a set of GPUs, whose all-reduce of so many bytes takes so
// many seconds, to its run on the reference. The slowest GPU of the set decides.
func Slowdown(g *nvtopo.Graph, set nvtopo.Mask, bytes, seconds float64) (float64, error) {
	slowest := 0.0
	for p := range set.All() {
		s, err := SheetOf(g.GPUs[p].Model)
		if err != nil {
			return 0, fmt.Errorf("GPU %d: %w", p, err)
		}
		slowest = max(slowest, referenceTFLOPS/s.TFLOPS)
	}
	k := float64(set.Len())
	if k < 2 {
		return slowest, nil
	}
	reference := 2 * (k - 1) * (bytes/k/referenceBandwidth + referenceLatency)
	return (1-Share)*slowest + Share*seconds/reference, nil
}
