// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/alias"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// topologyKey is the key of the ConfigMap's only entry.
const topologyKey = "topology.json"

// topologyDoc is the ConfigMap's entry: the graph for scripts that cannot read a custom
// resource.
type topologyDoc struct {
	Node     string   `json:"node"`
	Resource string   `json:"resource,omitempty"`
	GPUs     []gpuDoc `json:"gpus"`
	// The fields below are in the order of gpus.
	Matrix        [][]string  `json:"matrix"`         // link classes, X on the diagonal
	BandwidthGBps [][]float64 `json:"bandwidthGBps"`  // of one direction
	PCIe          [][]string  `json:"pcie,omitempty"` // PCIe levels, "" if not known
	LatencyMicros [][]float64 `json:"latencyMicroseconds,omitempty"`
	Switched      [][]bool    `json:"switched,omitempty"` // through a switch of the fabric
	NUMA          []numaDoc   `json:"numa"`
	NICs          []nicDoc    `json:"nics,omitempty"`
	// Document has the same data under the keys that other tools' scripts read.
	alias.Document
}

type gpuDoc struct {
	Index     int              `json:"index"`
	UUID      string           `json:"uuid"`
	Model     string           `json:"model,omitempty"`
	PCIBusID  string           `json:"pciBusID,omitempty"`
	Memory    int64            `json:"memoryBytes,omitempty"`
	NUMANode  int              `json:"numaNode"` // -1: unknown
	CPUs      string           `json:"cpus,omitempty"`
	MIG       bool             `json:"mig,omitempty"`
	Slices    []v1alpha1.Slice `json:"slices,omitempty"`
	Unhealthy string           `json:"unhealthy,omitempty"` // the reason
	Degraded  string           `json:"degraded,omitempty"`  // the reason
}

type numaDoc struct {
	ID        int      `json:"id"`
	CPUs      string   `json:"cpus,omitempty"`
	Cores     []string `json:"cores,omitempty"` // hyper-threads of each
	Memory    int64    `json:"memoryBytes,omitempty"`
	Distances []int    `json:"distances,omitempty"` // in the order of numa
}

type nicDoc struct {
	Name     string   `json:"name"`
	NUMANode int      `json:"numaNode"`
	PCIe     []string `json:"pcie,omitempty"` // in the order of gpus
}

func (in *input) asConfigMap(namespace string) (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(in.document(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", topologyKey, err)
	}
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-topology-" + in.name, Namespace: namespace,
			Labels: map[string]string{"app.kubernetes.io/managed-by": programName},
		},
		Data: map[string]string{topologyKey: string(data) + "\n"},
	}, nil
}

func (in *input) document() *topologyDoc {
	g := in.graph
	doc := &topologyDoc{
		Node: in.name, Resource: in.resource, GPUs: []gpuDoc{}, NUMA: []numaDoc{}, Document: alias.Describe(g),
		Matrix: emptyCells[string](g), BandwidthGBps: emptyCells[float64](g), PCIe: emptyCells[string](g), LatencyMicros: emptyCells[float64](g), Switched: emptyCells[bool](g),
	}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		out := gpuDoc{
			Index: d.Index, UUID: d.UUID, Model: d.Model, PCIBusID: d.PCIBusID, Memory: d.Memory, NUMANode: d.NUMANode, CPUs: d.CPUs.String(),
			MIG: d.MIG, Unhealthy: d.Unhealthy, Degraded: d.Degraded,
		}
		for _, s := range d.Slices {
			out.Slices = append(out.Slices, v1alpha1.Slice{ID: s.UUID, Profile: s.Profile})
		}
		doc.GPUs = append(doc.GPUs, out)
		for j := range g.GPUs {
			l := g.Link(i, j)
			doc.Matrix[i][j], doc.BandwidthGBps[i][j], doc.PCIe[i][j] = l.Class.String(), nvtopo.GBps(l.Bandwidth), l.PCIe.String()
			doc.LatencyMicros[i][j], doc.Switched[i][j] = float64(l.Latency)/1e3, l.Switched
		}
		doc.Matrix[i][i] = "X"
	}
	for i := range g.NUMANodes {
		n := &g.NUMANodes[i]
		out := numaDoc{ID: n.ID, CPUs: n.CPUs.String(), Memory: n.Memory, Distances: n.Distances}
		for _, core := range n.Siblings {
			out.Cores = append(out.Cores, core.String())
		}
		doc.NUMA = append(doc.NUMA, out)
	}
	for i := range g.NICs {
		out := nicDoc{Name: g.NICs[i].Name, NUMANode: g.NICs[i].NUMANode}
		for _, l := range g.NICs[i].Levels {
			out.PCIe = append(out.PCIe, l.String())
		}
		doc.NICs = append(doc.NICs, out)
	}
	return doc
}

// emptyCells returns an empty cell for each pair of GPUs.
func emptyCells[T any](g *nvtopo.Graph) [][]T {
	rows := make([][]T, g.Len())
	for i := range rows {
		rows[i] = make([]T, g.Len())
	}
	return rows
}

// decodeConfigMap reads a ConfigMap written by export --format configmap, as the NodeGPUTopology of that
// graph.
func decodeConfigMap(data []byte) (*v1alpha1.NodeGPUTopology, error) {
	if n := countDocuments(data); n > 1 {
		return nil, fmt.Errorf("%d YAML documents, want one ConfigMap", n)
	}
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &cm); err != nil {
		return nil, fmt.Errorf("ConfigMap: %w", err)
	}
	text, ok := cm.Data[topologyKey]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %q has no entry %s", cm.Name, topologyKey)
	}
	doc := &topologyDoc{}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(doc); err != nil {
		return nil, fmt.Errorf("%s: %w", topologyKey, located([]byte(text), err, true))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: want one JSON object and nothing behind it", topologyKey)
	}
	g, err := doc.graph()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", topologyKey, err)
	}
	return v1alpha1.FromGraph(doc.Node, doc.Resource, g), nil
}

func (doc *topologyDoc) graph() (*nvtopo.Graph, error) {
	gpus := make([]nvtopo.GPU, len(doc.GPUs))
	for i := range doc.GPUs {
		var err error
		if gpus[i], err = doc.GPUs[i].read(); err != nil {
			return nil, fmt.Errorf("gpus[%d]: %w", i, err)
		}
	}
	nodes := make([]nvtopo.NUMANode, len(doc.NUMA))
	for i := range doc.NUMA {
		var err error
		if nodes[i], err = doc.NUMA[i].read(); err != nil {
			return nil, fmt.Errorf("numa[%d]: %w", i, err)
		}
	}
	var nics []nvtopo.NIC
	for i := range doc.NICs {
		nic := nvtopo.NIC{Name: doc.NICs[i].Name, NUMANode: doc.NICs[i].NUMANode}
		if nic.NUMANode < nvtopo.UnknownNUMA || nic.NUMANode > maxIndex {
			return nil, fmt.Errorf("nics[%d]: numaNode %d: want -1 to %d", i, nic.NUMANode, maxIndex)
		}
		for _, text := range doc.NICs[i].PCIe {
			level, err := readLevel(text)
			if err != nil {
				return nil, fmt.Errorf("nics[%d]: %w", i, err)
			}
			nic.Levels = append(nic.Levels, level)
		}
		nics = append(nics, nic)
	}
	links, err := doc.links()
	if err != nil {
		return nil, err
	}
	return nvtopo.NewGraph(gpus, nodes, nics, links)
}

// maxIndex is the greatest number of a GPU or a NUMA node.
const maxIndex = 1023

func (d *gpuDoc) read() (nvtopo.GPU, error) {
	out := nvtopo.GPU{
		UUID: d.UUID, Index: d.Index, Model: d.Model, PCIBusID: d.PCIBusID, Memory: d.Memory, NUMANode: d.NUMANode,
		MIG: d.MIG, Unhealthy: d.Unhealthy, Degraded: d.Degraded,
	}
	for _, s := range d.Slices {
		out.Slices = append(out.Slices, nvtopo.Slice{UUID: s.ID, Profile: s.Profile})
	}
	if d.Index < 0 || d.Index > maxIndex || d.NUMANode < nvtopo.UnknownNUMA || d.NUMANode > maxIndex || d.Memory < 0 {
		return out, fmt.Errorf("index %d, numaNode %d, memoryBytes %d: want an index of 0 to %d, a node of -1 to %d, and no negative memory",
			d.Index, d.NUMANode, d.Memory, maxIndex, maxIndex)
	}
	var err error
	out.CPUs, err = nvtopo.ParseCPUList(d.CPUs)
	return out, err
}

func (n *numaDoc) read() (out nvtopo.NUMANode, err error) {
	out = nvtopo.NUMANode{ID: n.ID, Memory: n.Memory, Distances: n.Distances}
	if n.ID < 0 || n.ID > maxIndex || n.Memory < 0 {
		return out, fmt.Errorf("id %d, memoryBytes %d: want an id of 0 to %d, and no negative memory", n.ID, n.Memory, maxIndex)
	}
	for _, d := range n.Distances {
		if d < 0 || d > nvtopo.UnknownDistance {
			return out, fmt.Errorf("distance %d: want 0 to %d", d, nvtopo.UnknownDistance)
		}
	}
	if out.CPUs, err = nvtopo.ParseCPUList(n.CPUs); err != nil {
		return out, err
	}
	for _, text := range n.Cores {
		core, err := nvtopo.ParseCPUList(text)
		if err != nil {
			return out, err
		}
		out.Siblings = append(out.Siblings, core)
	}
	return out, nil
}

// maxGBps bounds a bandwidth: 100 TB/s, as in a NodeGPUTopology.
const maxGBps = 1e5

// links reads the tables. Documents of older releases lack pcie, latencyMicroseconds and switched.
func (doc *topologyDoc) links() (map[[2]int]nvtopo.Link, error) {
	n := len(doc.GPUs)
	for name, wrong := range map[string]bool{
		"matrix": !square(doc.Matrix, n), "bandwidthGBps": !square(doc.BandwidthGBps, n),
		"pcie": doc.PCIe != nil && !square(doc.PCIe, n), "latencyMicroseconds": doc.LatencyMicros != nil && !square(doc.LatencyMicros, n),
		"switched": doc.Switched != nil && !square(doc.Switched, n),
	} {
		if wrong {
			return nil, fmt.Errorf("%s: want %d rows of %d", name, n, n)
		}
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range n {
		for j := i + 1; j < n; j++ {
			one, err := doc.link(i, j)
			if err != nil {
				return nil, fmt.Errorf("GPUs %d and %d: %w", doc.GPUs[i].Index, doc.GPUs[j].Index, err)
			}
			if other, err := doc.link(j, i); err != nil || other != one {
				return nil, fmt.Errorf("GPUs %d and %d: the two directions differ", doc.GPUs[i].Index, doc.GPUs[j].Index)
			}
			links[[2]int{i, j}] = one
		}
	}
	return links, nil
}

func square[T any](rows [][]T, n int) bool {
	for _, row := range rows {
		if len(row) != n {
			return false
		}
	}
	return len(rows) == n
}

func (doc *topologyDoc) link(i, j int) (nvtopo.Link, error) {
	class, err := nvtopo.ParseClass(doc.Matrix[i][j])
	if err != nil {
		return nvtopo.Link{}, err
	}
	level := class.PCIe
	if doc.PCIe != nil {
		if level, err = readLevel(doc.PCIe[i][j]); err != nil {
			return nvtopo.Link{}, err
		}
	}
	link := nvtopo.NewLink(class, level, 0, 0, doc.Switched != nil && doc.Switched[i][j])
	gbps := doc.BandwidthGBps[i][j]
	if !(gbps >= 1e-6 && gbps <= maxGBps) {
		return link, fmt.Errorf("bandwidth of %v GB/s: want 0.000001 to %v", gbps, maxGBps)
	}
	link.Bandwidth = int64(math.Round(gbps * 1e6))
	if doc.LatencyMicros != nil {
		micros := doc.LatencyMicros[i][j]
		if !(micros > 0 && micros <= 1e6) {
			return link, errors.New("want a latency of more than 0 and at most 1000000 µs")
		}
		link.Latency = int64(math.Round(micros * 1e3))
	}
	return link, nil
}

// readLevel reads a PCIe level; "" is an unknown one.
func readLevel(text string) (nvtopo.PCIeLevel, error) {
	if text == "" {
		return nvtopo.PCIeUnknown, nil
	}
	return nvtopo.ParsePCIeLevel(text)
}
