// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// View is a cluster as people are shown it. Its JSON form is what `nvtopo top -o json` prints.
type View struct {
	// Resource is the extended resource of the GPUs.
	Resource string `json:"resource"`
	// MinLink is the link that any two GPUs of what is counted have at least; empty: any.
	MinLink string    `json:"minLink,omitempty"`
	Moment  time.Time `json:"moment"` // when the objects were read
	Levels  []string  `json:"levels"` // of the fabric, outermost first
	Supply  Supply    `json:"supply"` // of the whole cluster
	Models  []Model   `json:"models"` // the same by GPU model
	Nodes   []*Node   `json:"nodes"`  // in the order of the fabric
	// NoScheduler is why no scheduler leads, and how to see more; empty while one leads, and where nothing tells.
	// In JSON it is one of the problems.
	NoScheduler string `json:"-"`
	// Problems are NoScheduler, what of labels, ClusterTopology and graphs does not count, and the notes of nodes.
	Problems []string `json:"problems,omitempty"`
	// Advice is which pods to move, by size of group, greatest first. It is there only if it was
	// asked for, see Advise.
	Advice []Advice `json:"advice,omitempty"`

	objects *clusterobjects.Objects
	tree    *fabric.Tree
	counter *counter
}

// Node is one node.
type Node struct {
	Name string `json:"name"`
	// Domains are the node's in the fabric, in the order of the levels; empty where it has none.
	Domains []string `json:"domains,omitempty"`
	// Closed is why nothing goes there, whatever is free; empty if pods may. See placement.Closed.
	Closed string `json:"closed,omitempty"`
	// NoGraph is why nobody chooses GPUs by the graph; then nothing of the node counts as free.
	NoGraph string `json:"noGraph,omitempty"`
	Model   string `json:"model,omitempty"` // of its GPUs, see nvtopo.ModelLabel; "mixed" if there are several
	GPUs    []GPU  `json:"gpus,omitempty"`
	// CountedGPUs is how many of the free GPUs nobody can be given: pods hold as many of which nobody
	// knows which these are, or by number the node has fewer left than its graph.
	CountedGPUs int `json:"countedGPUs,omitempty"`
	// Note is why it has fewer by number than by its graph, or gives fewer than it has by number, why its
	// kubelet's CPUs are not known, and that its agent is silent.
	Note string `json:"note,omitempty"`
	// Refuses says that its kubelet refuses pods, so that others are preferred for a while.
	Refuses   string     `json:"refuses,omitempty"`
	NUMANodes []NUMANode `json:"numaNodes,omitempty"`
	NICs      []NIC      `json:"nics,omitempty"`
	Pods      []Pod      `json:"pods,omitempty"` // that hold GPUs, by namespace and name
	// Rings are the best rings of 8, 4 and 2 GPUs there are now.
	Rings []Ring `json:"rings,omitempty"`
	// Largest is the largest free linked group; nil if no two free GPUs are one.
	Largest *Ring  `json:"largest,omitempty"`
	Supply  Supply `json:"supply"`

	object *v1.Node
	known  *usage.Node // nil: no topology that can be read
	used   *usage.Usage
	input  usage.Input
	accel  int // position in known.Accels, -1 if it has none
}

// GPU is one GPU of a node.
type GPU struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	Model       string `json:"model,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	NUMANode    int    `json:"numaNode"` // -1: not known
	CPUs        string `json:"cpus,omitempty"`
	// State is one of the States.
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is unhealthy or degraded
	// Pods hold it, as namespace/name; more than one only if something is wrong.
	Pods []string `json:"pods,omitempty"`
}

// State says whether a GPU can be given to a pod.
type State string

// The States, the first one that applies.
const (
	Unhealthy State = "unhealthy" // it must not be used; a pod may hold it
	MIG       State = "mig"       // partitioned: not given whole
	Used      State = "used"      // a pod holds it
	Degraded  State = "degraded"  // free, for a pod of one GPU in all
	Free      State = "free"
)

// NUMANode is one NUMA node of a node.
type NUMANode struct {
	ID          int    `json:"id"`
	CPUs        string `json:"cpus,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
}

// NIC is one network adapter of a node.
type NIC struct {
	Name     string `json:"name"`
	NUMANode int    `json:"numaNode"` // -1: not known
}

// Pod is a pod that holds GPUs of a node, or is bound to it and asks for some.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	GPUs      []int     `json:"gpus"` // by index
	// Lost is what is said of those of its GPUs that are unhealthy or no longer part of the node.
	// kubelet counts them as given until the pod goes. AbsentGPUs is how many are no longer part of it.
	Lost       string `json:"lost,omitempty"`
	AbsentGPUs int    `json:"absentGPUs,omitempty"`
	// Counted is how many GPUs it has of which nobody knows which these are.
	Counted int `json:"counted,omitempty"`
	// Gone: the pod does not exist any more, and kubelet has not released its GPUs yet.
	Gone bool   `json:"gone,omitempty"`
	Gang string `json:"gang,omitempty"` // as messages name it
	// Ring is that of its GPUs; nil below two.
	Ring *Ring `json:"ring,omitempty"`
	// Unmovable is why nobody is advised to move it; empty if it may be moved.
	Unmovable   string `json:"unmovable,omitempty"`
	Replacement string `json:"-"` // as of Move
}

// FullName is namespace/name.
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Ring is a set of two GPUs or more, and what its best ring is worth.
type Ring struct {
	GPUs  []int  `json:"gpus"`  // indices, in ring order
	Class string `json:"class"` // of the weakest link
	// BandwidthGBps is that of the weakest link, in GB/s and one direction. Best is what as many
	// GPUs of the machine have when it is empty.
	BandwidthGBps     float64 `json:"bandwidthGBps"`
	BestBandwidthGBps float64 `json:"bestBandwidthGBps"`
}

// Supply is what a part of the cluster has. Free GPUs and slots leave out nodes that are closed
// and those without a graph that counts.
type Supply struct {
	Nodes    int `json:"nodes"`
	GPUs     int `json:"gpus"`
	UsedGPUs int `json:"usedGPUs"` // of them that pods hold, those known by number included
	FreeGPUs int `json:"freeGPUs"`
	// JoinedGPUs are those of the free ones that have View.MinLink or a better link to another free one:
	// any direct link (NVLink, XGMI, HCCS), if that is empty.
	JoinedGPUs int `json:"joinedGPUs"`
	// BadGPUs are unhealthy or partitioned, whether a pod holds them or not, or degraded and free.
	BadGPUs int `json:"badGPUs"`
	// Slots are by size, greatest first.
	Slots []Slots `json:"slots"`
}

// Slots is how many pods of one size there is room for.
type Slots struct {
	GPUs int `json:"gpus"` // of each pod
	// Free is how many such pods without a demand on links beside View.MinLink fit now, if all are of
	// that size, and Capacity how many would on the empty machines.
	Free     int `json:"free"`
	Capacity int `json:"capacity"`
	// Linked are the slots that are linked groups, by link class, best first; none for one GPU.
	Linked []Linked `json:"linked,omitempty"`
}

// Linked counts linked groups of one size and link class. A group is linked if its best ring is
// as fast as the best of as many GPUs on the same machine when that is empty. Its link class is
// that of this best ring's weakest link: so the GPUs of a node count under one class.
type Linked struct {
	Class string `json:"class"`
	// FreeGPUs are the free GPUs of the nodes of the class. Free is how many disjoint linked groups
	// they are, Capacity how many there are on the empty machines, and Ideal how many so many free
	// GPUs could be: the smaller of Capacity and FreeGPUs / size.
	FreeGPUs int `json:"freeGPUs"`
	Free     int `json:"free"`
	Capacity int `json:"capacity"`
	Ideal    int `json:"ideal"`
	// Fragmentation is the share of Ideal that is missing, from 0 to 1; 0 if Ideal is 0.
	Fragmentation float64 `json:"fragmentation"`

	class nvtopo.Class
}

// Graph returns the link graph of the node; nil if there is none. Do not change it.
func (n *Node) Graph() *nvtopo.Graph {
	if n.accel < 0 {
		return nil
	}
	return n.known.Accels[n.accel].Graph
}

// Tables returns the tables of the node's graph; nil if there is none.
func (n *Node) Tables() *nvtopo.Tables {
	if n.accel < 0 {
		return nil
	}
	return n.known.Accels[n.accel].Tables
}

// FreeMask returns the healthy GPUs that no pod holds, by position in Graph, degraded ones
// included. Pods known by number may hold some of them.
func (n *Node) FreeMask() nvtopo.Mask {
	if n.accel < 0 || n.NoGraph != "" {
		return 0
	}
	return n.used.FreeAt(n.accel)
}

// Usage returns what is used on the node, as the scheduler works it out; nil if there is no
// topology that can be read.
func (n *Node) Usage() *usage.Usage { return n.used }

// Object returns the Node.
func (n *Node) Object() *v1.Node { return n.object }

// Open reports whether what is free on the node counts.
func (n *Node) Open() bool { return n.Closed == "" && n.NoGraph == "" && n.accel >= 0 }

// onlyCordoned reports whether what is free on the node counts once it is uncordoned.
func (n *Node) onlyCordoned() bool {
	if n.Open() || n.NoGraph != "" || n.accel < 0 {
		return false
	}
	uncordoned := new(*n.object)
	uncordoned.Spec.Unschedulable = false
	return placement.Closed(uncordoned) == ""
}

// free is how many GPUs pods could be given, were the node open.
func (n *Node) free() int { return max(0, n.FreeMask().Len()-n.CountedGPUs) }

// Node returns the node of that name; nil if there is none.
func (v *View) Node(name string) *Node {
	for _, n := range v.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Tree returns the fabric of the cluster.
func (v *View) Tree() *fabric.Tree { return v.tree }
