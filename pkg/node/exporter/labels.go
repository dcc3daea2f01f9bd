// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Node labels, for node selectors of pods under any scheduler. They describe the hardware and not its
// health, so they change only with the hardware.
const (
	LabelInterconnect    = "nvtopo.dev/gpu-interconnect"
	LabelCount           = v1alpha1.LabelGPUCount
	LabelProduct         = "nvtopo.dev/gpu-product"
	LabelNUMANodes       = "nvtopo.dev/numa-nodes"
	LabelGPUsPerNUMA     = "nvtopo.dev/gpus-per-numa"
	LabelSingleNUMA4GPUs = "nvtopo.dev/single-numa-4gpu"
	LabelSingleNUMA8GPUs = "nvtopo.dev/single-numa-8gpu"
)

// AnnotationTopology is the Node's annotation with a summary of the graph in one line of JSON. The whole
// graph is in the NodeGPUTopology, because every client that lists nodes also reads their annotations.
const AnnotationTopology = "nvtopo.dev/gpu-topology"

// ownLabels and ownAnnotations list all keys under nvtopo.dev that an exporter may have written.
var (
	ownLabels = []string{
		LabelInterconnect, LabelCount, LabelProduct, LabelNUMANodes, LabelGPUsPerNUMA, LabelSingleNUMA4GPUs, LabelSingleNUMA8GPUs,
	}
	ownAnnotations = []string{AnnotationTopology}
)

// nodeMarks returns the labels and annotation that describe a graph, including the aliases unless the
// configuration excludes them. A label without a value is left out.
func nodeMarks(cfg *Config, g *nvtopo.Graph, sum *v1alpha1.Summary) marks {
	perNUMA := gpusPerNUMA(g)
	most := 0
	for _, n := range perNUMA {
		most = max(most, n.GPUs)
	}
	// Fewer than two GPUs have no interconnect.
	inter, product := cmp.Or(g.BestClass().String(), "none"), labelValue(product(g))
	m := marks{
		labels: map[string]string{
			LabelInterconnect:    inter,
			LabelCount:           strconv.Itoa(g.Len()),
			LabelNUMANodes:       strconv.Itoa(int(sum.NUMANodes)),
			LabelGPUsPerNUMA:     strconv.Itoa(most),
			LabelSingleNUMA4GPUs: strconv.FormatBool(most >= 4),
			LabelSingleNUMA8GPUs: strconv.FormatBool(most >= 8),
		},
		annotations: map[string]string{AnnotationTopology: topologyText(sum, inter, perNUMA)},
	}
	if product != "" {
		m.labels[LabelProduct] = product
	}
	if !cfg.NoCompatLabels {
		m.addAliases(cfg, g)
	}
	return m
}

// product returns the model of all GPUs, or "mixed" if they have several.
func product(g *nvtopo.Graph) string {
	if g.Len() == 0 {
		return ""
	}
	for i := range g.GPUs {
		if g.GPUs[i].Model != g.GPUs[0].Model {
			return "mixed"
		}
	}
	return g.GPUs[0].Model
}

// numaCount is the number of whole GPUs on one NUMA node.
type numaCount struct {
	Node int `json:"node"`
	GPUs int `json:"gpus"`
}

// gpusPerNUMA counts the GPUs that can be allocated whole on each known NUMA node, ascending by node.
func gpusPerNUMA(g *nvtopo.Graph) []numaCount {
	counts := map[int]int{}
	for i := range g.GPUs {
		if d := &g.GPUs[i]; d.NUMANode != nvtopo.UnknownNUMA && !d.MIG {
			counts[d.NUMANode]++
		}
	}
	out := make([]numaCount, 0, len(counts))
	for node, n := range counts {
		out = append(out, numaCount{node, n})
	}
	slices.SortFunc(out, func(a, b numaCount) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// topologyText returns the value of AnnotationTopology.
func topologyText(sum *v1alpha1.Summary, inter string, perNUMA []numaCount) string {
	b, err := json.Marshal(struct {
		Interconnect string      `json:"interconnect"`
		GPUs         int32       `json:"gpus"`
		NUMANodes    int32       `json:"numaNodes"`
		PerNUMA      []numaCount `json:"gpusPerNUMA"`
	}{inter, sum.GPUs, sum.NUMANodes, perNUMA})
	if err != nil {
		return "" // strings and ints always marshal
	}
	return string(b)
}

// labelValue converts a product name to a valid label value: other characters become dashes, as in
// NVIDIA's feature discovery, and the ends are trimmed.
func labelValue(s string) string {
	const maxLen = 63 // validation.LabelValueMaxLength
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), maxLen)], "-_.")
}
