// SPDX-License-Identifier: Apache-2.0

package alias

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Labels of a Node.
const (
	LabelAccelerator     = "accelerator"
	LabelCount           = "gpu-count"
	LabelInterconnect    = "topology.kubernetes.io/gpu-interconnect"
	LabelNUMANodes       = "topology.kubernetes.io/numa-nodes"
	LabelGPUsPerNUMA     = "topology.kubernetes.io/gpus-per-numa"
	LabelSingleNUMA4GPUs = "topology.kubernetes.io/single-numa-4gpu"
	LabelSingleNUMA8GPUs = "topology.kubernetes.io/single-numa-8gpu"
)

// Interconnect is the value of LabelInterconnect: nvswitch, nvlink or pcie, whichever
// is the best that joins two GPUs of the node; xgmi and hccs for the fabrics of other
// vendors, none below two GPUs.
func Interconnect(g *nvtopo.Graph) string {
	var best nvtopo.Link
	for i := range g.Len() {
		for j := range i {
			if l := g.Link(i, j); l.Class.AtLeast(best.Class) {
				best = l
			}
		}
	}
	switch medium := medium(best); {
	case g.Len() < 2:
		return "none"
	case medium == mediumSYS:
		return "pcie" // across the sockets, but PCIe still
	default:
		return strings.ToLower(medium)
	}
}

// formWord is a word of a product's name that says how much memory it has or how it is
// mounted: one model is sold in several forms.
var formWord = regexp.MustCompile(`^([0-9]+gb?|hbm[0-9]+e?|sxm[0-9]*|pcie|nvl)$`)

// Accelerator is the value of LabelAccelerator: vendor and model of the node's GPUs
// without their form, so that an A100 is nvidia-a100 with 40 GB and with 80, as an SXM
// module and as a PCIe card; mixed where models differ, and empty where none is known.
// What is counted under a resource of nvidia.com is NVIDIA's, named so or not. The
// value may be too long for a label.
func Accelerator(g *nvtopo.Graph, resource string) string {
	model := ""
	for i := range g.GPUs {
		m := accelerator(g.GPUs[i].Model, resource)
		if i > 0 && m != model {
			return "mixed"
		}
		model = m
	}
	return model
}

func accelerator(product, resource string) string {
	words := strings.FieldsFunc(strings.ToLower(product), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	if len(words) == 0 {
		return ""
	}
	nvidia := strings.HasPrefix(resource, "nvidia.com/")
	for len(words) > 1 && (words[0] == "nvidia" || words[0] == "tesla") { // Tesla: data center GPUs until the V100
		nvidia, words = true, words[1:]
	}
	if i := slices.IndexFunc(words, formWord.MatchString); i > 0 {
		words = words[:i]
	}
	if nvidia {
		words = slices.Concat([]string{"nvidia"}, words)
	}
	return strings.Join(words, "-")
}
