// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"strconv"
	"time"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Cluster is the document of the whole cluster.
type Cluster struct {
	Version  int64              `json:"version"`
	Moment   time.Time          `json:"moment"`   // time at which the objects were read
	Resource string             `json:"resource"` // extended resource of the GPUs
	Levels   []string           `json:"levels"`   // of the fabric, outermost first
	Supply   clusterview.Supply `json:"supply"`
	Nodes    []Node             `json:"nodes"` // in the order of the fabric
	Problems []string           `json:"problems"`
	Features Features           `json:"features"`
}

// Features are the optional pages that have content.
type Features struct {
	Pools bool `json:"pools"` // ComputePools are installed
	Gangs bool `json:"gangs"` // PodGroups are installed, or some pods are a gang
}

// Node is the summary of one node.
type Node struct {
	Name    string   `json:"name"`
	Domains []string `json:"domains"` // one for each level; empty if it is in none
	Model   string   `json:"model"`   // "mixed" if there are several
	GPUs    int      `json:"gpus"`
	Used    int      `json:"used"` // held by pods, including those known only by number
	Free    int      `json:"free"`
	Bad     int      `json:"bad"` // unhealthy or partitioned, or degraded and free
	// Slots are the numbers of pods that fit now, by GPUs of a pod, and Capacity the numbers on the empty
	// machine.
	Slots    map[string]int `json:"slots"`
	Capacity map[string]int `json:"capacity"`
	// States has one letter a GPU: f free, u used, d degraded and free, m partitioned, x unhealthy.
	States  string `json:"states"`
	Closed  string `json:"closed"`  // why no pod is placed on it; empty if pods may be
	NoGraph string `json:"noGraph"` // why GPUs are not chosen by the graph; empty if the scheduler does
	Note    string `json:"note"`    // as clusterview's Node.Notes
}

// letters are the letters of Node.States.
var letters = map[clusterview.State]byte{
	clusterview.Free: 'f', clusterview.Used: 'u', clusterview.Degraded: 'd', clusterview.MIG: 'm', clusterview.Unhealthy: 'x',
}

// ClusterOf makes the document of a view. problems are the errors of reading the objects.
func ClusterOf(version int64, v *clusterview.View, f Features, problems []string) *Cluster {
	c := &Cluster{
		Version: version, Moment: v.Moment.UTC(), Resource: v.Resource, Levels: v.Levels, Supply: v.Supply, Nodes: []Node{}, Features: f,
		Problems: append(append([]string{}, problems...), v.Problems...),
	}
	for _, n := range v.Nodes {
		c.Nodes = append(c.Nodes, NodeOf(n))
	}
	return c
}

// NodeOf returns the summary of a node.
func NodeOf(n *clusterview.Node) Node {
	out := Node{
		Name: n.Name, Domains: append([]string{}, n.Domains...), Model: n.Model, GPUs: n.Supply.GPUs, Used: n.Supply.UsedGPUs, Free: n.Supply.FreeGPUs,
		Bad: n.Supply.BadGPUs, Slots: map[string]int{}, Capacity: map[string]int{}, Closed: n.Closed, NoGraph: n.NoGraph,
		Note: n.Notes(),
	}
	for _, s := range n.Supply.Slots {
		size := strconv.Itoa(s.GPUs)
		out.Slots[size], out.Capacity[size] = s.Free, s.Capacity
	}
	states := make([]byte, len(n.GPUs))
	for i := range n.GPUs {
		states[i] = letters[n.GPUs[i].State]
	}
	out.States = string(states)
	return out
}

// NodeDetail is the document of one node.
type NodeDetail struct {
	*clusterview.Node

	Links  Links    `json:"links"`
	Levels []string `json:"levels"` // levels of the fabric, in the order of Domains
}

// Links are the links of a node's GPUs, in the order of NodeDetail.GPUs.
type Links struct {
	// Classes are the link classes of "nvidia-smi topo -m"; X on the diagonal.
	Classes [][]string `json:"classes"`
	// BandwidthGBps is in GB/s in one direction; 0 on the diagonal.
	BandwidthGBps [][]float64 `json:"bandwidthGBps"`
}

// NodeDetailOf returns the document of the node of that name; nil if there is none.
func NodeDetailOf(v *clusterview.View, name string) *NodeDetail {
	n := v.Node(name)
	if n == nil {
		return nil
	}
	out := &NodeDetail{Node: n, Levels: v.Levels, Links: Links{Classes: [][]string{}, BandwidthGBps: [][]float64{}}}
	g := n.Graph()
	if g == nil {
		return out
	}
	for i := range g.GPUs {
		classes, speeds := make([]string, g.Len()), make([]float64, g.Len())
		for j := range g.GPUs {
			classes[j] = "X"
			if i != j {
				l := g.Link(i, j)
				classes[j], speeds[j] = l.Class.String(), nvtopo.GBps(l.Bandwidth)
			}
		}
		out.Links.Classes, out.Links.BandwidthGBps = append(out.Links.Classes, classes), append(out.Links.BandwidthGBps, speeds)
	}
	return out
}
