// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

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

// notOlder reports whether the stored object is this version of its name or a
// later one. Versions of one API server are comparable numbers, also of two
// objects; one that is not (a test's fake) counts as newer.
func notOlder(n *usage.Node, version string) bool {
	cmp, err := resourceversion.CompareResourceVersion(version, n.ResourceVersion)
	return err == nil && cmp <= 0
}

// cell holds everything known by node name. It outlives graph and Node object
// while anything refers to it.
type cell struct {
	name     string
	topology *topologyEntry
	usage    atomic.Pointer[usage.Usage]
	// rev counts changes of graph, claims and holds; part of the usage memo's key.
	rev    atomic.Uint64
	claims []*claim     // guarded by State.mu
	doubts atomic.Int32 // how many of them are doubtful
	// busySince is when the node's kubelet was first found to have pods to admit before
	// another, and busyAsked when last; guarded by State.mu.
	busySince, busyAsked time.Time
	// holds of pods nominated for the node, guarded by State.mu, and how many there are.
	holds []*hold
	held  atomic.Int32
	// position in the index, guarded by its mutex; until when the node is looked at
	// for an event, guarded by that of the touched; and whether the waker has yet to
	// look at it for one, and what that was, guarded by that of the news.
	position     int
	touchedUntil time.Time
	unseen       bool
	touched      touch
}

// topologyEntry is what is known of a node's NodeGPUTopology. Who reads it takes no lock;
// State.graphMu is held by who writes it.
type topologyEntry struct {
	node      atomic.Pointer[usage.Node]
	fault     atomic.Pointer[fault]     // of the object as last seen; nil: it can be read
	published atomic.Pointer[published] // the rest of it; nil: there is no object
	// outlived: the graph counts no longer, since what followed it cannot be read. It is
	// watchExpiry's alone.
	outlived bool
}

// Node is the topology as stored, whether it counts or not; nil if there is none.
func (e *topologyEntry) Node() *usage.Node { return e.node.Load() }

// Fault is what cannot be used of the object as last seen; empty if all of it can.
func (e *topologyEntry) Fault() string {
	if f := e.fault.Load(); f != nil {
		return f.text
	}
	return ""
}

// Object is the UID of the object as last seen; empty if there is none.
func (e *topologyEntry) Object() types.UID {
	if p := e.published.Load(); p != nil {
		return p.object
	}
	return ""
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

// all yields every cell by its node's name.
func (c *cells) all() iter.Seq2[string, *cell] {
	return func(yield func(string, *cell) bool) {
		for i := range c.shards {
			m := c.shards[i].Load()
			if m == nil {
				continue
			}
			for name, x := range *m {
				if !yield(name, x) {
					return
				}
			}
		}
	}
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
	x := &cell{name: name, topology: &topologyEntry{}}
	next[name] = x
	p.Store(&next)
	return x
}

// Apply stores a node's topology unless the store already has this or a newer
// version of the object. It reports whether anything changed. An error names the
// fields that cannot be read; of the half they are in the last good one stays.
func (s *State) Apply(obj *v1alpha1.NodeGPUTopology) (bool, error) {
	changed, _, err := s.apply(obj, false)
	return changed, err
}

// apply also reports whether some pod may fit now that did not before. Of a partial
// object the graph is that of an earlier version; all of it may follow.
func (s *State) apply(obj *v1alpha1.NodeGPUTopology, partial bool) (changed, freed bool, err error) {
	x := s.cells.ensure(obj.Name)
	e := x.topology
	s.graphMu.Lock()
	defer s.graphMu.Unlock()
	old := e.node.Load()
	if isKnown(old, obj, partial) {
		return false, false, nil
	}
	now := s.clock.Now()
	counted := old != nil && e.Vouched(old, now) == placement.Fits
	e.published.Store(publishedIn(obj))
	n, faults := s.buildNode(obj, old)
	others := s.contest.enter(old, n, s.Synced())
	if n != nil {
		n.Partial = partial
		faults.contested = s.contest.withhold(n)
	}
	err = e.judge(obj, partial, faults, now)
	if n == nil && old == nil {
		return false, false, err
	}
	e.node.Store(n)
	if n == nil {
		x.usage.Store(nil) // it refers to the graph
	}
	x.rev.Add(1)
	s.touch(x)
	freed = s.resettle(others)
	return true, freed || n != nil && (old == nil || n.Roomier(old) || !counted && e.Vouched(n, now) == placement.Fits), err
}

// isKnown reports whether the node is of this or a newer version of an object, read as far.
func isKnown(n *usage.Node, obj *v1alpha1.NodeGPUTopology, partial bool) bool {
	return n != nil && notOlder(n, obj.ResourceVersion) && (partial || !n.Partial || n.ResourceVersion != obj.ResourceVersion)
}

// Remove forgets a node's topology if it is the stored object that went.
func (s *State) Remove(name string, objectUID types.UID) bool {
	x := s.cells.get(name)
	if x == nil {
		return false
	}
	e := x.topology
	s.graphMu.Lock()
	defer s.graphMu.Unlock()
	if f := e.fault.Load(); f != nil && f.object == objectUID {
		e.fault.Store(nil)
	}
	if p := e.published.Load(); p != nil && p.object == objectUID {
		e.published.Store(nil)
	}
	old := e.node.Load()
	if old == nil || old.ObjectUID != objectUID {
		return false
	}
	e.node.Store(nil)
	x.usage.Store(nil) // it refers to the graph
	x.rev.Add(1)
	s.touch(x)
	if s.resettle(s.contest.enter(old, nil, true)) {
		s.onFreed()
	}
	return true
}

// unfinished reports whether an exporter has made the object and is yet to write its
// status: without it, GPUs that are broken would look healthy for a moment. An object
// that somebody made by hand has no Node for its owner and may go without a status.
func unfinished(obj *v1alpha1.NodeGPUTopology) bool {
	return obj.Status.Summary == nil && slices.ContainsFunc(obj.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" })
}

// buildNode reads an object, each of its halves for itself: a mistake of the agent's
// must not hide what the exporter reports, nor the other way round. In place of
// what cannot be read it puts the same part of the last version of the object that
// could be, and says what is wrong. Without a graph now or before there is no Node.
func (s *State) buildNode(obj *v1alpha1.NodeGPUTopology, old *usage.Node) (*usage.Node, faults) {
	var wrong faults
	if old != nil && old.ObjectUID != obj.UID {
		old = nil // what another object said is no part of this one
	}
	if old == nil && unfinished(obj) {
		return nil, wrong
	}
	graphs, numa, err := s.reader.Read(obj)
	spec := &obj.Spec
	if err != nil {
		wrong.graph = err
		if old == nil {
			return nil, wrong
		}
		// The devices' health is in the other half of the exporter's part, by their ids.
		mixed := *obj
		mixed.Spec, spec = *old.Spec, old.Spec
		if graphs, numa, err = s.reader.Read(&mixed); err != nil {
			wrong.graph = err
			return nil, wrong
		}
	}
	n := &usage.Node{
		Name: obj.Name, NodeUID: spec.NodeUID, ResourceVersion: obj.ResourceVersion, ObjectUID: obj.UID, Created: obj.CreationTimestamp.Time, NUMA: numa, Spec: spec,
		Exporter: s.leases.Get(nodelease.ExporterPrefix + obj.Name), Agent: s.leases.Get(nodelease.AgentPrefix + obj.Name),
	}
	for _, res := range slices.Sorted(maps.Keys(graphs)) {
		tables := s.registry.Share(graphs[res])
		g := tables.Graph()
		n.Accels = append(n.Accels, &usage.Accel{
			Resource: res, Graph: g, Tables: tables, Healthy: g.Healthy(), Degraded: g.Degraded(), Kind: s.kindOf(g),
		})
		n.Resources = append(n.Resources, res)
	}
	n.KubeletStatus = obj.Status.Kubelet
	if err := s.readKubelet(n, n.KubeletStatus); err != nil {
		wrong.others = append(wrong.others, fmt.Errorf("NodeGPUTopology %s: status.kubelet: %w", obj.Name, err))
		n.KubeletStatus = nil
		if old != nil && s.readKubelet(n, old.KubeletStatus) == nil {
			n.KubeletStatus = old.KubeletStatus
		}
	}
	n.Complete()
	wrong.others = append(wrong.others, readAllocations(n, obj)...)
	return n, wrong
}

// readKubelet reads how the node's kubelet decides, nil where that is not known. On
// an error nothing is known.
func (s *State) readKubelet(n *usage.Node, k *v1alpha1.Kubelet) (err error) {
	n.Settings, n.StaticCPUs, n.KubeletPolicy, n.ReservedCPUs, n.Kubelet = "", false, nvtopo.PolicyNone, nil, nil
	if k == nil {
		return nil
	}
	reserved, err := nvtopo.ParseCPUList(k.ReservedCPUs)
	if err != nil {
		return fmt.Errorf("reservedCPUs: %w", err)
	}
	n.StaticCPUs, n.ReservedCPUs = k.CPUManagerPolicy == "static", reserved
	decides, err := usage.NewKubelet(n, k)
	if err != nil {
		n.StaticCPUs, n.ReservedCPUs = false, nil
		return err
	}
	n.Settings, n.Kubelet = usage.SettingsOf(k), decides
	switch k.TopologyManagerPolicy {
	case "single-numa-node":
		n.KubeletPolicy = nvtopo.PolicySingleNUMANode
	case "restricted":
		n.KubeletPolicy = nvtopo.PolicyRestricted
	}
	if n.Kubelet != nil {
		n.Kubelet.Kind = maphash.String(s.cells.seed, n.Settings)
	}
	return nil
}

// readAllocations reads what kubelet recorded. GPUs count whatever else is wrong with
// an entry; CPUs that cannot be read are as good as none.
func readAllocations(n *usage.Node, obj *v1alpha1.NodeGPUTopology) (wrong []error) {
	var lists v1alpha1.CPULists
	for i := range obj.Status.Allocations {
		a := &obj.Status.Allocations[i]
		cpus, err := lists.Read(a.CPUs)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("NodeGPUTopology %s: status.allocations[%d].cpus: %w", obj.Name, i, err))
		}
		if n.Records == nil {
			n.Records = map[types.UID][]usage.Record{}
		}
		pod := ""
		if a.Pod != "" {
			pod = a.Namespace + "/" + a.Pod
		}
		n.Records[a.PodUID] = append(n.Records[a.PodUID], usage.Record{
			Pod: pod, Resource: a.Resource, GPUs: a.GPUs, CPUs: cpus, Foreign: a.State == v1alpha1.StateForeign,
		})
	}
	return wrong
}
