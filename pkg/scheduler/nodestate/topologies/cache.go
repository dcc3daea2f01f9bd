// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"iter"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Cache has the known state of every node's NodeGPUTopology. Make one with New.
type Cache struct {
	clock    clock.WithTicker
	leases   *nodelease.Table
	registry *nvtopo.Registry
	synced   func() bool
	reader   v1alpha1.Reader
	decoder  usage.Decoder
	served   atomic.Bool // whether the API server serves NodeGPUTopology, as far as is known
	entries  sync.Map    // node name -> *Entry
	unknown  Entry       // the entry of unknown nodes; never written

	mu      sync.Mutex // guards the fields below, and is held to write or remove an Entry
	limiter *limiter
	owners  *owners
}

// New returns an empty Cache. leases vouch for the objects, and registry has the tables of their graphs.
// synced returns whether the first lists are in: until then it is unknown which of two nodes published a
// device first.
func New(clk clock.WithTicker, leases *nodelease.Table, registry *nvtopo.Registry, synced func() bool) *Cache {
	c := &Cache{
		clock: clk, leases: leases, registry: registry, synced: synced, decoder: usage.NewDecoder(), limiter: newLimiter(clk), owners: newOwners(),
	}
	c.served.Store(true)
	return c
}

// Entry is the known state of one node's NodeGPUTopology. Its methods take no lock and do not allocate
// memory. Writers hold Cache.mu.
type Entry struct {
	node      atomic.Pointer[usage.Node]
	fault     atomic.Pointer[fault]     // of the last seen object; nil: it can be read
	published atomic.Pointer[published] // the rest of it; nil: there is no object
	// ended: the last good graph is no longer valid; see Cache.Ended.
	ended bool
}

// Node returns the topology as last read, valid or not; nil if there is none.
func (e *Entry) Node() *usage.Node { return e.node.Load() }

// Fault returns which parts of the last seen object cannot be used; empty if all can.
func (e *Entry) Fault() string {
	if f := e.fault.Load(); f != nil {
		return f.text
	}
	return ""
}

// Object returns the UID of the last seen object; empty if there is none.
func (e *Entry) Object() types.UID {
	if p := e.published.Load(); p != nil {
		return p.object
	}
	return ""
}

// Entry returns the entry of a node and makes it if necessary. It remains the node's until Forget removes
// it.
func (c *Cache) Entry(node string) *Entry {
	if e := c.lookup(node); e != nil {
		return e
	}
	e, _ := c.entries.LoadOrStore(node, &Entry{})
	entry, _ := e.(*Entry)
	return entry
}

// Known returns the entry of a node, or an empty one.
func (c *Cache) Known(node string) *Entry {
	if e := c.lookup(node); e != nil {
		return e
	}
	return &c.unknown
}

// Forget removes the entry of a node, and the state of the Leases of its programs, and returns true,
// unless an object or one of these Leases exists.
func (c *Cache) Forget(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.Known(node)
	if e.node.Load() != nil || e.fault.Load() != nil || e.published.Load() != nil || c.limiter.waiting[node].obj != nil {
		return false
	}
	if !c.leases.Forget(nodelease.ExporterPrefix+node, nodelease.AgentPrefix+node) {
		return false
	}
	c.entries.Delete(node)
	return true
}

// LeaseGone records that a Lease was deleted, and forgets it if no entry uses it.
func (c *Cache) LeaseGone(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases.Drop(name)
	if c.lookup(nodelease.NodeOf(name)) == nil {
		c.leases.Forget(name)
	}
}

// lookup returns the entry of a node, or nil.
func (c *Cache) lookup(node string) *Entry {
	e, _ := c.entries.Load(node)
	entry, _ := e.(*Entry)
	return entry
}

// all yields every entry by its node's name.
func (c *Cache) all() iter.Seq2[string, *Entry] {
	return func(yield func(string, *Entry) bool) {
		c.entries.Range(func(key, value any) bool {
			name, _ := key.(string)
			e, _ := value.(*Entry)
			return yield(name, e)
		})
	}
}

// Node returns a node's topology as last read, valid or not; nil if there is none.
func (c *Cache) Node(name string) *usage.Node {
	if e := c.lookup(name); e != nil {
		return e.Node()
	}
	return nil
}

// Change has the effects of one step of the Cache.
type Change struct {
	Node    string // the node of the object; empty if none
	Changed bool   // the node's topology is another one now, or gone
	// Others are nodes whose topology changed because they own other devices now.
	Others []string
	Freed  bool // some pod may fit now that did not before
	// Unserved: the definition of NodeGPUTopology was removed.
	Unserved bool
}

// Apply reads an object, unless this version or a newer one was read before. The error names the fields
// that cannot be used, if it is a new one; the last good fields stay in their place.
func (c *Cache) Apply(obj *v1alpha1.NodeGPUTopology) (Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apply(obj, false)
}

// take is Apply for an object from the watch. It keeps it for later if its node publishes too much.
func (c *Cache) take(obj *v1alpha1.NodeGPUTopology) (Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(obj)
}

// takeLocked is take. The caller holds c.mu.
func (c *Cache) takeLocked(obj *v1alpha1.NodeGPUTopology) (Change, error) {
	n := c.Node(obj.Name)
	var last *v1alpha1.NodeGPUTopologySpec
	if n != nil && n.ObjectUID == obj.UID {
		last = n.Spec
	}
	read := c.limiter.admit(obj, last, func() bool { return c.isNew(obj, last != nil) })
	switch {
	case read != nil:
		return c.apply(read, read != obj)
	case n != nil && last == nil && !notOlder(n, obj.ResourceVersion):
		// Made again while the watch was broken: no other event reports the deletion of the earlier object.
		return c.remove(n.Name, n.ObjectUID), nil
	}
	return Change{Node: obj.Name}, nil
}

// takeLate reads a node's waiting object, if it still waits and may be read now.
func (c *Cache) takeLate(node string) (Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late, ok := c.limiter.waiting[node]
	if !ok {
		return Change{}, nil
	}
	return c.takeLocked(late.obj)
}

// late returns the nodes with a waiting object.
func (c *Cache) late() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limiter.due()
}

// HeldBack returns the objects that wait because their nodes publish too much, by node.
func (c *Cache) HeldBack() map[string]diagnosis.HeldBack {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]diagnosis.HeldBack, len(c.limiter.waiting))
	for node, late := range c.limiter.waiting {
		out[node] = diagnosis.HeldBack{ResourceVersion: late.obj.ResourceVersion, Since: late.since.UTC(), GraphOnly: late.partial}
	}
	return out
}

// apply reads an object. A partial object has the graph of an earlier version, and may follow completely
// later. The caller holds c.mu.
func (c *Cache) apply(obj *v1alpha1.NodeGPUTopology, partial bool) (Change, error) {
	e, change := c.Entry(obj.Name), Change{Node: obj.Name}
	old := e.node.Load()
	if isKnown(old, obj, partial) {
		return change, nil
	}
	now := c.clock.Now()
	counted := old != nil && e.CheckExporter(old, now) == placement.Fits
	e.published.Store(publishedIn(obj))
	n, faults := c.decode(obj, old)
	others := c.owners.publish(old, n, c.synced())
	if n != nil {
		n.Partial = partial
		faults.contested = c.owners.withhold(n)
	}
	err := e.judge(obj, partial, faults, now)
	if n == nil && old == nil {
		return change, err
	}
	e.node.Store(n)
	change.Changed, change.Others = true, c.withholdAnew(others)
	change.Freed = len(change.Others) > 0 || n != nil && (old == nil || n.Roomier(old) || !counted && e.CheckExporter(n, now) == placement.Fits)
	return change, err
}

// isKnown reports whether the node is from this or a newer version of an object, read as completely.
func isKnown(n *usage.Node, obj *v1alpha1.NodeGPUTopology, partial bool) bool {
	return n != nil && notOlder(n, obj.ResourceVersion) && (partial || !n.Partial || n.ResourceVersion != obj.ResourceVersion)
}

// notOlder reports whether the node is from this version of its object or a later one. Versions of one
// API server are comparable numbers, also of two objects; one that is not (a test's fake) is treated as
// newer.
func notOlder(n *usage.Node, version string) bool {
	cmp, err := resourceversion.CompareResourceVersion(version, n.ResourceVersion)
	return err == nil && cmp <= 0
}

// Remove forgets a node's object if it is the one that was read last.
func (c *Cache) Remove(name string, object types.UID) Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(name, object)
}

// remove is Remove. The caller holds c.mu.
func (c *Cache) remove(name string, object types.UID) Change {
	c.limiter.forget(name, object)
	change := Change{Node: name}
	e := c.lookup(name)
	if e == nil {
		return change
	}
	if f := e.fault.Load(); f != nil && f.object == object {
		e.fault.Store(nil)
	}
	if e.Object() == object {
		e.published.Store(nil)
	}
	old := e.node.Load()
	if old == nil || old.ObjectUID != object {
		return change
	}
	e.node.Store(nil)
	change.Changed, change.Others = true, c.withholdAnew(c.owners.publish(old, nil, true))
	change.Freed = len(change.Others) > 0
	return change
}
