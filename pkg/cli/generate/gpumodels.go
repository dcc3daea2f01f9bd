// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// gpuModel holds the properties implied by a product's name.
type gpuModel struct {
	sm  int            // compute capability, major * 10 + minor
	gen nvtopo.PCIeGen // of its PCIe connector
}

// gpuModels has words of product names; the first that is in a name is used. Sources: NVIDIA's list of
// compute capabilities (developer.nvidia.com/cuda-gpus) and the data sheets.
var gpuModels = []struct {
	word string
	gpuModel
}{
	{"GB200", gpuModel{100, 5}},
	{"B200", gpuModel{100, 5}},
	{"H100", gpuModel{90, 5}},
	{"H200", gpuModel{90, 5}},
	{"A100", gpuModel{80, 4}},
	{"L40S", gpuModel{89, 4}},
	{"RTX 4090", gpuModel{89, 4}},
	{"RTX A6000", gpuModel{86, 4}},
	{"V100", gpuModel{70, 3}},
	{"P100", gpuModel{60, 3}},
}

// knownModel returns the model with a name; zero if it is not in the list: NCCL then uses the driver's
// values.
func knownModel(name string) gpuModel {
	fields := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	name = " " + strings.Join(fields, " ") + " "
	for _, m := range gpuModels {
		if strings.Contains(name, " "+m.word+" ") {
			return m.gpuModel
		}
	}
	return gpuModel{}
}
