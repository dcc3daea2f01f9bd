// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// NUMA distances as the firmware's SLIT gives them.
const (
	LocalDistance   = 10  // a NUMA node to itself
	RemoteDistance  = 20  // between two known nodes when there is no SLIT (Linux's REMOTE_DISTANCE)
	UnknownDistance = 255 // to or from an unknown NUMA node
)

// UnknownNUMA is the NUMA node of a device whose node is not known. Each such device is treated as on a
// node of its own.
const UnknownNUMA = -1

// GPU is one accelerator of a node.
type GPU struct {
	UUID      string // the only stable key
	Index     int    // the number that the vendor's tool prints; not stable over reboots
	PCIBusID  string // domain:bus:device.function, lower case, 4- or 8-digit domain
	Model     string
	Memory    int64 // bytes; 0 when unknown
	NUMANode  int   // node of the CPUs nearest to it, or UnknownNUMA
	CPUs      CPUSet
	MIG       bool    // partitioned: not for whole-GPU requests, and no peer links
	Slices    []Slice // its MIG instances
	Unhealthy string  // why it must not be used; empty when healthy
	Degraded  string  // why it may be used only alone, never with other GPUs; empty when it may
}

// Slice is a part of a partitioned GPU. It has its GPU's location and no links.
type Slice struct {
	UUID    string
	Profile string // as NVIDIA's tools name it, for example 1g.10gb
}

// NUMANode is one NUMA node of the machine, with or without CPUs.
type NUMANode struct {
	ID        int
	CPUs      CPUSet
	Siblings  []CPUSet // hyper-threads of each core; empty when not known
	Memory    int64    // bytes
	Distances []int    // SLIT row in the order of Graph.NUMANodes; empty when not known
}

// NIC is a network adapter and its PCIe distance to each GPU position.
type NIC struct {
	Name     string
	NUMANode int
	Levels   []PCIeLevel
}

// Graph is the link graph of one node for one kind of accelerator. Build it with NewGraph and treat it as
// immutable: it is shared.
type Graph struct {
	GPUs      []GPU
	NUMANodes []NUMANode
	NICs      []NIC

	links  []Link    // row-major n x n, symmetric; the diagonal is zero
	tflops []float64 // by GPU
}

// NewGraph builds a graph. links maps a pair of positions (either order) to its link; NewGraph returns an
// error for the first pair without one.
func NewGraph(gpus []GPU, nodes []NUMANode, nics []NIC, links map[[2]int]Link) (*Graph, error) {
	n := len(gpus)
	if n > MaxGPUs {
		return nil, fmt.Errorf("%d GPUs, at most %d are supported", n, MaxGPUs)
	}
	g := &Graph{GPUs: gpus, NUMANodes: nodes, NICs: nics, links: make([]Link, n*n), tflops: make([]float64, n)}
	for i := range gpus {
		g.tflops[i] = gpus[i].TFLOPS()
	}
	if err := g.setLinks(links); err != nil {
		return nil, err
	}
	for i := range nodes {
		if d := nodes[i].Distances; len(d) != 0 && len(d) != len(nodes) {
			return nil, fmt.Errorf("NUMA node %d has %d distances for %d nodes", nodes[i].ID, len(d), len(nodes))
		}
	}
	return g, nil
}

// setLinks fills the matrix and checks that no pair is missing.
func (g *Graph) setLinks(links map[[2]int]Link) error {
	n := len(g.GPUs)
	for p, l := range links {
		i, j := p[0], p[1]
		if i < 0 || j < 0 || i >= n || j >= n || i == j {
			return fmt.Errorf("link of GPUs %d and %d: there are %d GPUs", i, j, n)
		}
		if prev := g.links[i*n+j]; prev != (Link{}) && prev != l {
			return fmt.Errorf("link of GPUs %d and %d is not symmetric: %s and %s", i, j, prev.Class, l.Class)
		}
		if l == (Link{}) {
			return fmt.Errorf("link of GPUs %d and %d is empty", i, j)
		}
		g.links[i*n+j], g.links[j*n+i] = l, l
	}
	for i := range n {
		for j := range i {
			if g.links[i*n+j] == (Link{}) {
				return fmt.Errorf("no link given for GPUs %d and %d", j, i)
			}
		}
	}
	return nil
}

// Len returns the number of GPUs.
func (g *Graph) Len() int { return len(g.GPUs) }

// Link returns the link of positions i and j; the zero Link when i == j.
func (g *Graph) Link(i, j int) Link { return g.links[i*len(g.GPUs)+j] }

// Joined returns the members of a set that have a link of class atLeast or better to another member.
func (g *Graph) Joined(set Mask, atLeast Class) (joined Mask) {
	for i := range set.All() {
		for j := range set.All() {
			if j < i && g.Link(i, j).Class.AtLeast(atLeast) {
				joined |= MaskOf(i, j)
			}
		}
	}
	return joined
}

// HasLink reports whether any two of the devices have a link of class atLeast or better.
func (g *Graph) HasLink(atLeast Class) bool { return g.Joined(FullMask(g.Len()), atLeast) != 0 }

// Healthy returns the GPUs that a whole-GPU request may use: healthy, not MIG.
func (g *Graph) Healthy() Mask {
	var m Mask
	for i := range g.GPUs {
		if g.GPUs[i].Unhealthy == "" && !g.GPUs[i].MIG {
			m |= 1 << i
		}
	}
	return m
}

// Degraded returns the GPUs of Healthy that may be used only alone, by a request of one GPU in all.
func (g *Graph) Degraded() Mask {
	var m Mask
	for i := range g.GPUs {
		if g.GPUs[i].Degraded != "" {
			m |= 1 << i
		}
	}
	return m & g.Healthy()
}

// NUMAUnknown returns the GPUs whose NUMA node is not known.
func (g *Graph) NUMAUnknown() Mask {
	var m Mask
	for i := range g.GPUs {
		if g.GPUs[i].NUMANode == UnknownNUMA {
			m |= 1 << i
		}
	}
	return m
}

// MightShareNUMA reports whether k GPUs of a set that the policy refuses could satisfy it if the NUMA
// nodes of all were known.
func (g *Graph) MightShareNUMA(among Mask, k int, policy Policy) bool {
	unknown := among & g.NUMAUnknown()
	if unknown == 0 || policy != PolicySingleNUMANode {
		return unknown != 0
	}
	most := 0
	for i := range g.NUMANodes {
		n := 0
		for p := range among.All() {
			if g.GPUs[p].NUMANode == g.NUMANodes[i].ID {
				n++
			}
		}
		most = max(most, n)
	}
	return most+unknown.Len() >= k
}

// Positions returns the positions of the given UUIDs as a set, and the UUIDs that are not in the graph.
func (g *Graph) Positions(uuids []string) (found Mask, missing []string) {
	for _, u := range uuids {
		i := slices.IndexFunc(g.GPUs, func(d GPU) bool { return d.UUID == u })
		if i < 0 {
			missing = append(missing, u)
			continue
		}
		found |= 1 << i
	}
	return found, missing
}

// NUMAOf returns the distinct NUMA nodes of a set in ascending order; an
// unknown node appears once, as UnknownNUMA, however many GPUs have it.
func (g *Graph) NUMAOf(s Mask) []int {
	var out []int
	for i := range s.All() {
		out = append(out, g.GPUs[i].NUMANode)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// NUMADistance returns the SLIT distance of two NUMA nodes by their ids:
// UnknownDistance where either is UnknownNUMA, RemoteDistance between distinct
// known nodes without a SLIT.
func (g *Graph) NUMADistance(a, b int) int {
	switch {
	case a == UnknownNUMA || b == UnknownNUMA:
		return UnknownDistance
	case a == b:
		return LocalDistance
	}
	i := slices.IndexFunc(g.NUMANodes, func(n NUMANode) bool { return n.ID == a })
	j := slices.IndexFunc(g.NUMANodes, func(n NUMANode) bool { return n.ID == b })
	if i < 0 || j < 0 || j >= len(g.NUMANodes[i].Distances) {
		return RemoteDistance
	}
	return g.NUMANodes[i].Distances[j]
}

// gpuDistance returns the NUMA distance of two GPU positions. Two GPUs whose node
// is unknown are on different nodes. A SLIT need not be symmetric: the greater
// direction counts.
func (g *Graph) gpuDistance(i, j int) int {
	if i == j {
		return LocalDistance
	}
	a, b := g.GPUs[i].NUMANode, g.GPUs[j].NUMANode
	return max(g.NUMADistance(a, b), g.NUMADistance(b, a))
}

// sharing returns the graph with the given links instead of its own if they are equal. The class key does
// not cover all of a link: Switched is not part of it.
func (g *Graph) sharing(links []Link) *Graph {
	if !slices.Equal(g.links, links) {
		return g
	}
	out := *g
	out.links = links
	return &out
}

// Model returns the model of the GPUs; "mixed" if there are several, empty without GPUs.
func (g *Graph) Model() string {
	switch {
	case len(g.GPUs) == 0:
		return ""
	case slices.ContainsFunc(g.GPUs, func(d GPU) bool { return d.Model != g.GPUs[0].Model }):
		return "mixed"
	}
	return g.GPUs[0].Model
}

// ModelLabel returns a model as node labels and price books spell it: "NVIDIA-H200". The driver has
// blanks in place of the dashes; a request in nvtopo.dev/gpu-model may have either.
func ModelLabel(model string) string { return strings.Join(strings.Fields(model), "-") }

// ClassKey returns the key of the graph class: equal for two graphs exactly when the objective cannot
// distinguish them, position by position (labelled links, models, NUMA grouping and distances). UUIDs,
// health and memory are not part of it: they are masks.
func (g *Graph) ClassKey() string {
	h := sha256.New()
	put := func(vs ...int64) {
		for _, v := range vs {
			_ = binary.Write(h, binary.LittleEndian, v) // a hash never fails to write
		}
	}
	models := map[string]int64{}
	put(int64(len(g.GPUs)))
	for i := range g.GPUs {
		m := g.GPUs[i].Model
		if _, ok := models[m]; !ok {
			models[m] = int64(len(models))
		}
		put(models[m])
		for j := range i {
			l := g.Link(i, j)
			same := int64(0)
			if g.GPUs[i].NUMANode == g.GPUs[j].NUMANode && g.GPUs[i].NUMANode != UnknownNUMA {
				same = 1
			}
			put(int64(l.Class.Kind), int64(l.Class.Lanes), int64(l.Class.PCIe), int64(l.PCIe), l.Bandwidth, l.Latency,
				same, int64(g.gpuDistance(i, j)))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
