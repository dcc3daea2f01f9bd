// SPDX-License-Identifier: Apache-2.0

package alias

import (
	"encoding/json"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// AnnotationTopology of a Node has a Topology as JSON.
const AnnotationTopology = "topology.kubernetes.io/gpu-topology"

// Topology is where the GPUs of a node are and which NVLinks join them.
type Topology struct {
	GPUs    []GPU        `json:"gpus"`
	NVLinks []Connection `json:"nvlinks"` // each pair once, without type
}

// GPU is one GPU of a Topology.
type GPU struct {
	ID   int    `json:"id"`   // the number that the vendor's tool prints
	NUMA int    `json:"numa"` // -1 where unknown
	PCIe string `json:"pcie"` // PCI address; empty where unknown
}

// Connection joins two GPUs, from the lower to the higher number.
type Connection struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	Type string `json:"type,omitempty"` // NVSwitch, NVLink, PCIe, SYS; XGMI or HCCS
	// BandwidthGBps is in GB/s (10^9 bytes/s), both directions together.
	BandwidthGBps float64 `json:"bandwidth_gbps"`
}

// Document is what the entry of a ConfigMap has.
type Document struct {
	GPUCount    int          `json:"gpu_count"`
	NUMANodes   []NUMANode   `json:"numa_nodes"`
	Connections []Connection `json:"connections"` // each pair once
}

// NUMANode is one NUMA node of a Document.
type NUMANode struct {
	ID   int   `json:"node_id"`
	GPUs []int `json:"gpus"` // their numbers
	CPUs []int `json:"cpus"`
}

// Annotation is the value of AnnotationTopology.
func Annotation(g *nvtopo.Graph) string {
	t := Topology{GPUs: []GPU{}, NVLinks: []Connection{}}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		t.GPUs = append(t.GPUs, GPU{ID: d.Index, NUMA: d.NUMANode, PCIe: d.PCIBusID})
	}
	for _, c := range connections(g) {
		if c.Type == mediumNVLink || c.Type == mediumNVSwitch {
			c.Type = ""
			t.NVLinks = append(t.NVLinks, c)
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return "" // numbers and strings always marshal
	}
	return string(b)
}

// Describe returns the document of a graph. GPUs whose NUMA node is not known are
// counted, and in none.
func Describe(g *nvtopo.Graph) Document {
	doc := Document{GPUCount: g.Len(), NUMANodes: []NUMANode{}, Connections: connections(g)}
	for i := range g.NUMANodes {
		n := NUMANode{ID: g.NUMANodes[i].ID, GPUs: []int{}, CPUs: append([]int{}, g.NUMANodes[i].CPUs...)}
		for j := range g.GPUs {
			if g.GPUs[j].NUMANode == n.ID {
				n.GPUs = append(n.GPUs, g.GPUs[j].Index)
			}
		}
		doc.NUMANodes = append(doc.NUMANodes, n)
	}
	return doc
}

func connections(g *nvtopo.Graph) []Connection {
	out := []Connection{}
	for i := range g.Len() {
		for j := i + 1; j < g.Len(); j++ {
			l, a, b := g.Link(i, j), g.GPUs[i].Index, g.GPUs[j].Index
			out = append(out, Connection{From: min(a, b), To: max(a, b), Type: medium(l), BandwidthGBps: 2 * nvtopo.GBps(l.Bandwidth)})
		}
	}
	return out
}

// What two GPUs are joined by.
const (
	mediumNVSwitch = "NVSwitch"
	mediumNVLink   = "NVLink"
	mediumPCIe     = "PCIe"
	mediumSYS      = "SYS" // PCIe across the sockets
)

func medium(l nvtopo.Link) string {
	switch l.Class.Kind {
	case nvtopo.KindNVLink:
		if l.Switched {
			return mediumNVSwitch
		}
		return mediumNVLink
	case nvtopo.KindXGMI:
		return "XGMI"
	case nvtopo.KindHCCS:
		return "HCCS"
	case nvtopo.KindPCIe, nvtopo.KindUnknown:
	}
	if l.Class.PCIe == nvtopo.PCIeSYS || l.Class.PCIe == nvtopo.PCIeUnknown {
		return mediumSYS // what is not known counts as the worst, as in its bandwidth
	}
	return mediumPCIe
}
