// SPDX-License-Identifier: Apache-2.0

package units

import (
	"slices"
	"strconv"
	"strings"
)

// prefixMIG begins the names of slices, as NVIDIA's device plugin has them with its MIG strategy
// "mixed". With "single" a slice is called as a whole GPU is, and cannot be told from one.
const prefixMIG = "nvidia.com/mig-"

// Compute slices of a GPU, by NVIDIA's MIG user guide.
const (
	sevenSlices = 7 // A100, H100, H200, B200 and their like
	fourSlices  = 4 // A30
)

// ofFour are the profiles of the GPU of four slices. No GPU of seven has a profile of these names.
var ofFour = []string{"1g.6gb", "2g.12gb", "4g.24gb"}

// profiles are the slices that Kueue's configuration names: what one 1g, 2g, 3g, 4g and 7g is on
// the GPUs of NVIDIA's MIG user guide. The suffix me is that of the slice with media engines.
var profiles = []string{
	"1g.5gb", "1g.5gb.me", "1g.10gb", "1g.10gb.me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", // 40 GB
	"1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", // 80 GB
	"1g.11gb", "1g.11gb.me", "1g.22gb", "2g.22gb", "3g.44gb", "4g.44gb", "7g.88gb", // 94 GB, older drivers
	"1g.12gb", "1g.12gb.me", "1g.24gb", "2g.24gb", "3g.47gb", "3g.48gb", "4g.47gb", "4g.48gb", "7g.94gb", "7g.96gb", // 94, 96 GB
	"1g.16gb", "1g.18gb", "1g.18gb.me", "1g.35gb", "1g.36gb", "2g.33gb", "2g.35gb", "2g.36gb", // 141, 144 GB
	"3g.71gb", "3g.72gb", "4g.71gb", "4g.72gb", "7g.141gb", "7g.144gb",
	"1g.23gb", "1g.23gb.me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb", // 180 GB
	"1g.6gb", "1g.6gb.me", "2g.12gb", "2g.12gb.me", "4g.24gb", // A30
}

// IsSlice says whether a resource is a part of a GPU: a MIG slice, or a turn.
func IsSlice(resource string) bool {
	return strings.HasPrefix(resource, prefixMIG) || strings.HasPrefix(resource, "nvidia.com/") && strings.HasSuffix(resource, ".shared")
}

// MilliOf is how many thousandths of a GPU a MIG slice is, rounded down, by its compute slices:
// nvidia.com/mig-1g.10gb is 142, 3g.40gb 428. False for what is no MIG slice. A slice with twice
// the memory (1g.20gb) counts no more, though fewer of it fit on a GPU.
func MilliOf(resource string) (int64, bool) {
	profile, ok := strings.CutPrefix(resource, prefixMIG)
	if !ok {
		return 0, false
	}
	number, memory, ok := strings.Cut(profile, "g.")
	if !ok || !strings.Contains(memory, "gb") {
		return 0, false
	}
	g, err := strconv.ParseInt(number, 10, 64)
	of := int64(sevenSlices)
	if slices.Contains(ofFour, strings.TrimSuffix(profile, ".me")) {
		of = fourSlices
	}
	if err != nil || g < 1 || g > of {
		return 0, false
	}
	return g * PerDevice / of, true
}

// Transformation is an entry of resources.transformations in Kueue's configuration.
type Transformation struct {
	Input    string            `json:"input"`
	Strategy string            `json:"strategy"`
	Outputs  map[string]string `json:"outputs"`
}

// Transformations have Kueue count MIG slices as thousandths of a GPU, in all pools alike. Those
// of turns would differ from pool to pool, so that a pool of turns has its quota in turns.
func Transformations() []Transformation {
	out := make([]Transformation, 0, len(profiles))
	for _, p := range profiles {
		milli, _ := MilliOf(prefixMIG + p)
		out = append(out, Transformation{
			Input: prefixMIG + p, Strategy: "Replace", Outputs: map[string]string{MilliGPU: strconv.FormatInt(milli, 10)},
		})
	}
	return out
}
