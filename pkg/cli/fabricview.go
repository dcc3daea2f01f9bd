// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// slotSizes are the sizes for which free slots are counted.
var slotSizes = [...]int{8, 4, 2, 1}

// fabricView is the output of fabric show; its JSON form is part of the command's contract.
type fabricView struct {
	Links   []viewedLink  `json:"links"` // of the cluster and of each level, outermost first
	Cluster *viewedDomain `json:"cluster"`
	// Problems are the parts of labels, ClusterTopology and graphs that are ignored.
	Problems []string `json:"problems,omitempty"`
}

// viewedLink is the link of two nodes whose smallest common domain is of this level.
type viewedLink struct {
	Level         string  `json:"level"`
	BandwidthGBps float64 `json:"bandwidthGBps"`
	LatencyMicros float64 `json:"latencyMicros"`
	Hops          int     `json:"hops"`
}

// capacity is the free capacity of a part of the fabric.
type capacity struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	// WholeNodes are those with GPUs that are all free. The fields below leave out excluded domains and
	// cordoned nodes.
	WholeNodes int `json:"wholeNodes"`
	FreeGPUs   int `json:"freeGPUs"`
	// Slots is the number of pods that fit, by their number of linked GPUs, if all are of that size.
	Slots map[string]int `json:"slots"`
}

func (c *capacity) add(o *capacity, closed bool) {
	c.Nodes, c.GPUs = c.Nodes+o.Nodes, c.GPUs+o.GPUs
	if closed {
		return
	}
	c.WholeNodes, c.FreeGPUs = c.WholeNodes+o.WholeNodes, c.FreeGPUs+o.FreeGPUs
	for size, n := range o.Slots {
		c.Slots[size] += n
	}
}

// viewedDomain is a domain with its parts: domains, and nodes that are in none of these.
type viewedDomain struct {
	Level string `json:"level"`
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	capacity
	Excluded string          `json:"excluded,omitempty"`
	Domains  []*viewedDomain `json:"domains,omitempty"`
	Members  []viewedNode    `json:"members,omitempty"`
}

type viewedNode struct {
	Name  string         `json:"name"`
	GPUs  int            `json:"gpus"`
	Free  []int          `json:"free"` // indices
	Slots map[string]int `json:"slots"`
	Note  string         `json:"note,omitempty"` // why it gets no pods

	whole bool
}

// viewer makes the view of a cluster.
type viewer struct {
	c       *fabricCluster
	minLink nvtopo.Class
	slots   [len(slotSizes)]fabric.Shape
}

// leavesOut reports whether a node has no two GPUs with the requested link.
func (v *viewer) leavesOut(n int) bool {
	t := v.c.tables[n]
	return v.minLink != (nvtopo.Class{}) && (t == nil || !t.Graph().HasLink(v.minLink))
}

// view counts the free capacity of each domain, for pods under a constraint. Nodes without the requested
// link are left out.
func (c *fabricCluster) view(con nvtopo.Constraint) *fabricView {
	v := viewer{c: c, minLink: con.MinLink}
	for i, size := range slotSizes {
		v.slots[i] = c.shape(size, con)
	}
	out := &fabricView{Cluster: v.domain(0, 0), Problems: c.problems}
	for d := range c.tree.Depth() + 1 {
		l := c.tree.Root()
		if d > 0 {
			l = c.tree.Levels()[d-1].Link
		}
		out.Links = append(out.Links, viewedLink{c.tree.LevelName(d), nvtopo.GBps(l.Bandwidth), float64(l.Latency) / 1e3, l.Hops})
	}
	return out
}

func (v *viewer) domain(depth, i int) *viewedDomain {
	t := v.c.tree
	d := &t.Domains(depth)[i]
	out := &viewedDomain{Level: t.LevelName(depth), Name: d.Name, Path: d.Path, Excluded: d.Excluded, capacity: capacity{Slots: map[string]int{}}}
	if depth == 0 {
		out.Name = fabric.RootLevel
	}
	for n := d.First; n < d.End; n++ {
		if inner := depth + 1; inner <= t.Depth() {
			at := t.DomainOf(inner, n)
			if child := &t.Domains(inner)[at]; child.Name != "" {
				if child.First == n {
					below := v.domain(inner, at)
					out.Domains = append(out.Domains, below)
					out.add(&below.capacity, below.Excluded != "")
				}
				continue
			}
		}
		if v.leavesOut(n) {
			continue
		}
		node := v.node(n)
		out.Members = append(out.Members, node)
		alone := capacity{Nodes: 1, GPUs: node.GPUs, FreeGPUs: len(node.Free), Slots: node.Slots}
		if node.whole {
			alone.WholeNodes = 1
		}
		out.add(&alone, node.Note != "")
	}
	return out
}

func (v *viewer) node(n int) viewedNode {
	out := viewedNode{Name: v.c.tree.Name(n), Free: []int{}, Slots: map[string]int{}, Note: v.c.notes[n]}
	t := v.c.tables[n]
	if t == nil {
		return out
	}
	in := input{graph: t.Graph()}
	out.GPUs, out.Free = t.Graph().Len(), in.members(v.c.free[n])
	out.whole = out.GPUs > 0 && len(out.Free) == out.GPUs
	for i, size := range slotSizes {
		out.Slots[strconv.Itoa(size)] = v.slots[i].Nodes[n].Slots.Count(nodeindex.Bands - 1)
	}
	slices.Sort(out.Free)
	return out
}
