// SPDX-License-Identifier: Apache-2.0

package units

import (
	"slices"
	"strconv"
	"strings"
)

// prefixMIG is the prefix of the resource names of MIG slices in NVIDIA's device plugin with the MIG
// strategy "mixed". With "single" a slice has the name of a whole GPU, and cannot be told from one.
const prefixMIG = "nvidia.com/mig-"

// Compute slices of a GPU, by NVIDIA's MIG user guide.
const (
	sevenSlices = 7 // A100, H100, H200, B200 and similar ones
	fourSlices  = 4 // A30
)

// ofFour are the profiles of the GPU of four slices. No GPU of seven has a profile of these names.
var ofFour = []string{"1g.6gb", "2g.12gb", "4g.24gb"}

// IsSlice reports whether a resource is a part of a GPU: a MIG slice, or a time-sliced replica.
func IsSlice(resource string) bool {
	return strings.HasPrefix(resource, prefixMIG) || strings.HasPrefix(resource, "nvidia.com/") && strings.HasSuffix(resource, ".shared")
}

// MilliOf returns the thousandths of a GPU of a MIG slice, rounded down, according to its compute
// slices: nvidia.com/mig-1g.10gb is 142, 3g.40gb 428. It returns false for other resources. A slice with
// twice the memory (1g.20gb) has the same number, though fewer of it fit on a GPU.
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
