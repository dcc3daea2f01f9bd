// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"cmp"
	"iter"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Machine is the state of one machine on which offers depend. Two machines with equal states, except for
// the graph that Tables names, are in one bucket.
type Machine struct {
	Tables        *nvtopo.Tables
	Healthy, Free nvtopo.Mask
	Degraded      nvtopo.Mask   // those of Healthy that only pods of one GPU get
	Kind          uint64        // distinguishes machines of one class that differ in models or memory
	Kubelet       nvtopo.Policy // enforced by the machine's kubelet itself
	Held          int           // free GPUs that pods known only by number will take
	Unknown       bool          // some of those run already, on unknown GPUs
	Singles       bool          // some of the GPUs belong to pods without a gang
}

// key identifies a bucket.
type key struct {
	class         nvtopo.ClassID
	healthy, free nvtopo.Mask
	degraded      nvtopo.Mask
	kind          uint64
	held          int
	kubelet       nvtopo.Policy
	unknown       bool
	singles       bool
}

func (m *Machine) key() key {
	return key{
		class: m.Tables.Class(), healthy: m.Healthy, free: m.Free, degraded: m.Degraded, kind: m.Kind, held: m.Held, kubelet: m.Kubelet, unknown: m.Unknown,
		singles: m.Singles,
	}
}

// Bucket is a group of machines in the same state.
type Bucket struct {
	Machine Machine // the first that was put
	counts  tally   // of each machine
	size    int     // machines
	groups  []*group
	byLeaf  map[int]*group // leaf -> its group
	idle    *group         // an empty group, kept for its memory
	at      int            // in Index.active, -1 when empty

	// Offers of the last used constraint, by the number of GPUs.
	constraint nvtopo.Constraint
	offers     []remembered
}

type remembered struct {
	offer     Offer
	ok, known bool
}

// Len returns the number of machines of the bucket.
func (b *Bucket) Len() int { return b.size }

// Nodes yields the machines of the bucket in no order.
func (b *Bucket) Nodes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, g := range b.groups {
			for _, node := range g.nodes {
				if !yield(node) {
					return
				}
			}
		}
	}
}

const (
	// maxIdle bounds the empty buckets that are kept for their cached offers.
	maxIdle = 4096
	// maxIdleClasses bounds the graph classes that only empty buckets have: a bucket
	// keeps the tables of its class, which may be megabytes.
	maxIdleClasses = 8
)

// Index holds machines by state. It is not safe for concurrent use.
type Index struct {
	buckets map[key]*Bucket
	active  []*Bucket               // those with machines
	where   []place                 // by node
	sizes   [nvtopo.MaxGPUs + 1]int // machines by number of GPUs
	// classes is the number of machines of each graph class that has a bucket; without is the number of
	// classes that have no machines.
	classes map[nvtopo.ClassID]int
	without int

	runs    []work                  // by node
	held    [nvtopo.MaxGPUs + 1]int // GPUs of pods that run, by the size of the pod
	supply  [2]supply               // of machines, by each of their sizes
	traffic map[[2]int]traffic      // by both sizes of a machine

	places          Places
	inLeaf, inSpine []tally
	tied            []*group // groups that least found
}

// place is the position of a node: its group (nil: none) and index in it.
type place struct {
	group *group
	at    int
}

// NewIndex returns an empty index of machines that are all in one leaf; see SetPlaces.
func NewIndex() *Index {
	return &Index{buckets: map[key]*Bucket{}, classes: map[nvtopo.ClassID]int{}, supply: [2]supply{{}, {}}, traffic: map[[2]int]traffic{}, inLeaf: []tally{{}}, inSpine: []tally{{}}}
}

// Put sets the state of a machine. Nodes are small numbers from 0.
func (x *Index) Put(node int, m Machine) {
	k := m.key()
	b := x.buckets[k]
	if b == nil {
		if len(x.buckets)-len(x.active) > maxIdle {
			x.forgetIdle()
		}
		b = &Bucket{Machine: m, counts: m.tally(), byLeaf: map[int]*group{}, at: -1}
		x.buckets[k] = b
	}
	x.where = append(x.where, make([]place, max(0, node+1-len(x.where)))...)
	if g := x.where[node].group; g != nil && g.bucket == b {
		return
	}
	x.count(k.class, 1) // before the old one is removed, so that a class of one machine always has a machine
	x.Remove(node)
	if b.size == 0 {
		b.at = len(x.active)
		x.active = append(x.active, b)
	}
	x.attach(node, b)
	x.sizes[m.Tables.Graph().Len()]++
}

// Remove removes a machine, if it is present.
func (x *Index) Remove(node int) {
	if !x.has(node) {
		return
	}
	x.unrun(node)
	b := x.where[node].group.bucket
	x.sizes[b.Machine.Tables.Graph().Len()]--
	defer x.count(b.Machine.Tables.Class(), -1)
	if x.detach(node); b.size > 0 {
		return
	}
	end := len(x.active) - 1
	x.active[b.at] = x.active[end]
	x.active[b.at].at = b.at
	x.active = x.active[:end]
	b.at = -1
}

// Machine returns the state of a machine, and false if it is not in the index.
func (x *Index) Machine(node int) (Machine, bool) {
	if !x.has(node) {
		return Machine{}, false
	}
	return x.where[node].group.bucket.Machine, true
}

func (x *Index) has(node int) bool { return node < len(x.where) && x.where[node].group != nil }

// Largest returns the number of GPUs of the largest machine; 0 if there is none.
func (x *Index) Largest() int {
	n := len(x.sizes) - 1
	for n > 0 && x.sizes[n] == 0 {
		n--
	}
	return n
}

// count adds or removes a machine of a class.
func (x *Index) count(class nvtopo.ClassID, by int) {
	n, known := x.classes[class]
	if known && n == 0 {
		x.without--
	}
	x.classes[class] = n + by
	if n+by > 0 {
		return
	}
	if x.without++; x.without > maxIdleClasses {
		x.forgetIdle()
	}
}

func (x *Index) forgetIdle() {
	for class, n := range x.classes {
		if n == 0 {
			delete(x.classes, class)
		}
	}
	x.without = 0

	for k, b := range x.buckets {
		if b.size == 0 {
			delete(x.buckets, k)
		}
	}
}

// offer returns the offer of the bucket's machines for a demand.
func (b *Bucket) offer(d *Demand) (*Offer, bool) {
	if b.constraint != d.Constraint {
		clear(b.offers)
		b.constraint = d.Constraint
	}
	if d.GPUs >= len(b.offers) {
		b.offers = append(b.offers, make([]remembered, d.GPUs+1-len(b.offers))...)
	}
	r := &b.offers[d.GPUs]
	if !r.known || d.Suitable != nil {
		r.offer, r.ok = b.Machine.Offer(d)
		r.known = d.Suitable == nil
	}
	return &r.offer, r.ok && (!d.KnownOnly || !b.Machine.Unknown)
}

// Offer returns the best set of the machine for a demand; ok is false if it has none. KnownOnly is
// ignored.
func (m *Machine) Offer(d *Demand) (o Offer, ok bool) {
	if m.Free.Len()-m.Held < d.GPUs {
		return Offer{}, false
	}
	allowed := ^nvtopo.Mask(0)
	if d.Suitable != nil {
		allowed = d.Suitable(m.Tables.Graph())
	}
	if d.GPUs > 1 && (m.Free&^m.Degraded).Len()-m.Held < d.GPUs {
		return Offer{}, false
	}
	set, ok := m.Tables.PickUsable(m.Free, m.Degraded, allowed, d.GPUs, Tighten(d.Constraint, m.Kubelet))
	if !ok {
		return Offer{}, false
	}
	return OfferOf(m.Tables, m.Healthy, m.Free, m.Degraded, set), true
}

// Candidate is a bucket whose machines can serve a demand.
type Candidate struct {
	Bucket *Bucket
	Offer  *Offer // valid until the next call of a method of the Index
	Node   int    // one of the bucket's
	Raw    int64  // set by Top

	// Values that Top compares.
	last bool
	cost float64
}

// Candidates appends the buckets whose machines can serve a demand, in no order.
func (x *Index) Candidates(d *Demand, into []Candidate) []Candidate {
	for _, b := range x.active {
		if o, ok := b.offer(d); ok {
			into = append(into, Candidate{Bucket: b, Offer: o, Node: b.groups[0].nodes[0]})
		}
	}
	return into
}

// Top returns the candidates whose score is within the given points of the best, best first, and the Best
// by which they were rated. It reorders cs.
func (x *Index) Top(cs []Candidate, d *Demand, order *Order, points float64) ([]Candidate, Best) {
	best := NoBest(x.terms(d, order))
	for i := range cs {
		c := &cs[i]
		c.last, c.cost = best.Reserved.Has(c.Offer), best.cost(c.Offer)
		best.lead(c.Offer, c.Node, c.last, c.cost)
	}
	among := 0
	for i := range cs {
		if c := &cs[i]; best.among(c.last, c.cost) {
			best.Add(c.Offer)
			cs[among] = *c
			among++
		}
	}
	cs = cs[:among]
	var most int64
	for i := range cs {
		cs[i].Raw = order.Weights.Raw(cs[i].Offer, &best)
		most = max(most, cs[i].Raw)
	}
	floor := most - int64(points*Point)
	n := 0
	for _, c := range cs {
		if c.Raw >= floor {
			cs[n] = c
			n++
		}
	}
	slices.SortFunc(cs[:n], func(a, b Candidate) int { return cmp.Compare(b.Raw, a.Raw) })
	return cs[:n], best
}

// Best returns the best machine for a demand and its offer; ok is false if none can serve it. Of equal
// machines one with the least Spare is taken, and of these the lowest node.
func (x *Index) Best(d *Demand, order *Order) (node int, o Offer, ok bool) {
	var buf [64]Candidate
	cs := x.Candidates(d, buf[:0])
	if len(cs) == 0 {
		return 0, Offer{}, false
	}
	cs, _ = x.Top(cs, d, order, 0)
	x.least(cs, -1)
	node = x.tied[0].nodes[0]
	for _, g := range x.tied {
		node = min(node, slices.Min(g.nodes))
	}
	best, ok := x.where[node].group.bucket.offer(d)
	return node, *best, ok
}
