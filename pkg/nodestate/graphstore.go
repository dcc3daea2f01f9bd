// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Accel is one resource's accelerators on one node; immutable.
type Accel struct {
	Resource string
	Graph    *nvtopo.Graph
	Tables   *nvtopo.Tables
	Healthy  nvtopo.Mask

	// kind is equal where a request for models or memory finds the same devices.
	kind uint64
}

// kindOf sums up what a request may ask of single devices: models and memory, which
// are not part of a graph's class.
func (s *State) kindOf(g *nvtopo.Graph) uint64 {
	var h maphash.Hash
	h.SetSeed(s.cells.seed)
	for i := range g.GPUs {
		maphash.WriteComparable(&h, g.GPUs[i].Model)
		maphash.WriteComparable(&h, g.GPUs[i].Memory)
	}
	return h.Sum64()
}

// recorded is what the node agent says kubelet recorded for a container.
type recorded struct {
	resource string
	gpus     []string
	cpus     nvtopo.CPUSet // it is confined to, if any
	foreign  bool          // nobody of ours chose for it
}

// Node is one node's topology; immutable but for the two times, which the
// Lease handler moves.
type Node struct {
	Name            string
	NodeUID         types.UID // of the Node the graph was read on
	ResourceVersion string
	Accels          []*Accel
	NUMA            *nvtopo.Graph // the NUMA nodes; may be without GPUs
	ReservedCPUs    nvtopo.CPUSet
	StaticCPUs      bool          // kubelet's own CPU manager chooses CPUs
	KubeletPolicy   nvtopo.Policy // PolicyNone unless kubelet aligns strictly

	kubelet     *kubelet // nil while there is nothing to predict
	settings    string   // how kubelet is configured, for comparison
	empty       *Usage   // with nothing running
	idle        *Usage   // with nothing but what kubelet's account says
	capacity    []numaFree
	cpus        nvtopo.CPUSet // that pods may be given
	byCPU       []int16       // CPU -> position of its NUMA node, or -1
	resources   []string      // of Accels, in their order
	objectUID   types.UID
	allocations map[types.UID][]recorded // pod UID -> what kubelet recorded
	exporter    *leaseTime
	agent       *leaseTime
}

// Accel returns the node's accelerators of a resource, or nil.
func (n *Node) Accel(resource string) *Accel {
	for _, a := range n.Accels {
		if a.Resource == resource {
			return a
		}
	}
	return nil
}

// notOlder reports whether the stored object is this version of its name or a
// later one. Versions of one API server are comparable numbers, also of two
// objects; one that is not (a test's fake) counts as newer.
func (n *Node) notOlder(version string) bool {
	cmp, err := resourceversion.CompareResourceVersion(version, n.ResourceVersion)
	return err == nil && cmp <= 0
}

// cell holds everything known by node name. It outlives graph and Node object
// while anything refers to it.
type cell struct {
	node  atomic.Pointer[Node]
	usage atomic.Pointer[Usage]
	// rev counts changes of graph and claims; part of the usage memo's key.
	rev    atomic.Uint64
	claims []*claim // guarded by State.mu
	// position in the index, guarded by its mutex; and until when the node is
	// looked at for an event, guarded by that of the touched.
	position     int
	touchedUntil time.Time
}

const cellShards = 64

// cells maps node name -> cell: shards of immutable maps behind atomic
// pointers. A reader takes no lock; adding a name copies 1/64 of the names, so
// that the initial list of a large cluster does not cost its square.
type cells struct {
	seed   maphash.Seed
	mu     sync.Mutex // serialises writers
	shards [cellShards]atomic.Pointer[map[string]*cell]
}

func newCells() *cells { return &cells{seed: maphash.MakeSeed()} }

func (c *cells) shard(name string) *atomic.Pointer[map[string]*cell] {
	return &c.shards[maphash.String(c.seed, name)%cellShards]
}

// get returns the cell of a node, or nil.
func (c *cells) get(name string) *cell {
	m := c.shard(name).Load()
	if m == nil {
		return nil
	}
	return (*m)[name]
}

// ensure returns the cell of a node, made if need be.
func (c *cells) ensure(name string) *cell {
	if x := c.get(name); x != nil {
		return x
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.get(name); x != nil {
		return x
	}
	p := c.shard(name)
	next := map[string]*cell{}
	if old := p.Load(); old != nil {
		next = maps.Clone(*old)
	}
	x := &cell{}
	next[name] = x
	p.Store(&next)
	return x
}

// Apply stores a node's topology unless the store already has this or a newer
// version of the object. It reports whether anything changed. A malformed
// object is an error that names the field; the last good graph then stays.
func (s *State) Apply(obj *v1alpha1.NodeGPUTopology) (bool, error) {
	changed, _, err := s.apply(obj)
	return changed, err
}

// apply also reports whether some pod may fit now that did not before.
func (s *State) apply(obj *v1alpha1.NodeGPUTopology) (changed, freed bool, err error) {
	x := s.cells.ensure(obj.Name)
	s.graphMu.Lock()
	defer s.graphMu.Unlock()
	old := x.node.Load()
	if old != nil && old.notOlder(obj.ResourceVersion) {
		return false, false, nil
	}
	n, err := s.buildNode(obj)
	if err != nil {
		return false, false, err
	}
	x.node.Store(n)
	x.rev.Add(1)
	s.touch(x)
	return true, old == nil || n.roomier(old), nil
}

// Remove forgets a node's topology if it is the stored object that went.
func (s *State) Remove(name string, objectUID types.UID) bool {
	x := s.cells.get(name)
	if x == nil {
		return false
	}
	s.graphMu.Lock()
	defer s.graphMu.Unlock()
	old := x.node.Load()
	if old == nil || old.objectUID != objectUID {
		return false
	}
	x.node.Store(nil)
	x.usage.Store(nil) // it refers to the graph
	x.rev.Add(1)
	s.touch(x)
	return true
}

func (s *State) buildNode(obj *v1alpha1.NodeGPUTopology) (*Node, error) {
	graphs, err := obj.Graphs()
	if err != nil {
		return nil, fmt.Errorf("NodeGPUTopology %s: %w", obj.Name, err)
	}
	numa, err := obj.NUMAGraph()
	if err != nil {
		return nil, fmt.Errorf("NodeGPUTopology %s: %w", obj.Name, err)
	}
	n := &Node{
		Name: obj.Name, NodeUID: obj.Spec.NodeUID, ResourceVersion: obj.ResourceVersion, objectUID: obj.UID,
		NUMA: numa, KubeletPolicy: nvtopo.PolicyNone,
		exporter: s.leases.time(ExporterLeasePrefix + obj.Name), agent: s.leases.time(AgentLeasePrefix + obj.Name),
	}
	for _, res := range slices.Sorted(maps.Keys(graphs)) {
		g := graphs[res]
		n.Accels = append(n.Accels, &Accel{Resource: res, Graph: g, Tables: s.registry.Tables(g), Healthy: g.Healthy(), kind: s.kindOf(g)})
		n.resources = append(n.resources, res)
	}
	if k := obj.Status.Kubelet; k != nil {
		n.settings = settingsOf(k)
		n.StaticCPUs = k.CPUManagerPolicy == "static"
		switch k.TopologyManagerPolicy {
		case "single-numa-node":
			n.KubeletPolicy = nvtopo.PolicySingleNUMANode
		case "restricted":
			n.KubeletPolicy = nvtopo.PolicyRestricted
		}
		if n.ReservedCPUs, err = nvtopo.ParseCPUList(k.ReservedCPUs); err != nil {
			return nil, fmt.Errorf("NodeGPUTopology %s: status.kubelet.reservedCPUs: %w", obj.Name, err)
		}
		if n.kubelet, err = newKubelet(n, k); err != nil {
			return nil, fmt.Errorf("NodeGPUTopology %s: status.kubelet: %w", obj.Name, err)
		}
		if n.kubelet != nil {
			n.kubelet.kind = maphash.String(s.cells.seed, n.settings)
		}
	}
	n.capacity, n.cpus, n.byCPU = capacity(n), allCPUs(n).Minus(n.ReservedCPUs), numaByCPU(n.NUMA.NUMANodes)
	n.empty, n.idle = emptyUsage(n), idleUsage(n)
	for i := range obj.Status.Allocations {
		a := &obj.Status.Allocations[i]
		cpus, err := nvtopo.ParseCPUList(a.CPUs)
		if err != nil {
			return nil, fmt.Errorf("NodeGPUTopology %s: status.allocations[%d].cpus: %w", obj.Name, i, err)
		}
		if n.allocations == nil {
			n.allocations = map[types.UID][]recorded{}
		}
		n.allocations[a.PodUID] = append(n.allocations[a.PodUID], recorded{
			resource: a.Resource, gpus: a.GPUs, cpus: cpus, foreign: a.State == v1alpha1.StateForeign,
		})
	}
	return n, nil
}
