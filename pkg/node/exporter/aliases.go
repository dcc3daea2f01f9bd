// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/alias"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// aliasLabels and aliasAnnotations list all keys outside nvtopo.dev that an exporter may have written.
var (
	aliasLabels = []string{
		alias.LabelAccelerator, alias.LabelCount, alias.LabelInterconnect, alias.LabelNUMANodes, alias.LabelGPUsPerNUMA,
		alias.LabelSingleNUMA4GPUs, alias.LabelSingleNUMA8GPUs,
	}
	aliasAnnotations = []string{alias.AnnotationTopology}
)

// addAliases adds the labels and annotation that other programs look for.
func (m *marks) addAliases(cfg *Config, g *nvtopo.Graph) {
	m.labels[alias.LabelInterconnect] = alias.Interconnect(g)
	m.labels[alias.LabelCount] = m.labels[LabelCount]
	m.labels[alias.LabelNUMANodes] = m.labels[LabelNUMANodes]
	m.labels[alias.LabelGPUsPerNUMA] = m.labels[LabelGPUsPerNUMA]
	m.labels[alias.LabelSingleNUMA4GPUs] = m.labels[LabelSingleNUMA4GPUs]
	m.labels[alias.LabelSingleNUMA8GPUs] = m.labels[LabelSingleNUMA8GPUs]
	if model := labelValue(alias.Accelerator(g, cfg.Resource)); model != "" {
		m.labels[alias.LabelAccelerator] = model
	}
	m.annotations[alias.AnnotationTopology] = alias.Annotation(g)
}

// keysOfOthers returns the labels and annotations that another field manager has set. An alias among them
// is not written: "accelerator", for example, is often set by hand, and pods select nodes by its value.
func keysOfOthers(managed []metav1.ManagedFieldsEntry) map[string]bool {
	keys := map[string]bool{}
	for i := range managed {
		m := &managed[i]
		if m.Manager == FieldManager || m.Manager == AliasFieldManager || m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels      map[string]json.RawMessage `json:"f:labels"`
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if err := json.Unmarshal(m.FieldsV1.Raw, &fields); err != nil {
			continue // the server writes this format; an unreadable entry names no owner
		}
		for k := range fields.Metadata.Labels {
			keys[strings.TrimPrefix(k, "f:")] = true
		}
		for k := range fields.Metadata.Annotations {
			keys[strings.TrimPrefix(k, "f:")] = true
		}
	}
	return keys
}
