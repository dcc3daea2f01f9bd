// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"cmp"
	"iter"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Machine is the state of one machine as far as offers depend on it. Two machines
// with equal states, but for the graph that Tables names, are in one bucket.
type Machine struct {
	Tables        *nvtopo.Tables
	Healthy, Free nvtopo.Mask
	Degraded      nvtopo.Mask   // those of Healthy that are given out only one to a pod
	Kind          uint64        // tells machines of one class apart that differ in models or memory
	Kubelet       nvtopo.Policy // what the machine's kubelet enforces by itself
	Held          int           // free GPUs that pods known only by count will take
	Unknown       bool          // some of those run already, on nobody knows which GPUs
	Singles       bool          // pods that are in no gang have some of the GPUs
}

// key is what makes a bucket.
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
	Machine Machine // the first that came
	counts  tally   // of each machine
	size    int     // machines
	groups  []*group
	byLeaf  map[int]*group // leaf -> its group
	idle    *group         // one that is empty, for its memory
	at      int            // in Index.active, -1 when empty

	// Offers of the constraint asked for last, by the number of GPUs.
	constraint nvtopo.Constraint
	offers     []remembered
}

type remembered struct {
	offer     Offer
	ok, known bool
}

// Len is the number of machines of the bucket.
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
	// maxIdle bounds the empty buckets that are kept for what they remember.
	maxIdle = 4096
	// maxIdleClasses bounds the graph classes that only empty buckets have: a bucket
	// keeps the tables of its class, which may be megabytes.
	maxIdleClasses = 8
)

// Index keeps machines by state. It is not safe for concurrent use.
type Index struct {
	buckets map[key]*Bucket
	active  []*Bucket               // those with machines
	where   []place                 // by node
	sizes   [nvtopo.MaxGPUs + 1]int // machines by number of GPUs
	// classes counts the machines of each graph class that has a bucket; without are
	// those that have none.
	classes map[nvtopo.ClassID]int
	without int

	runs    []work                  // by node
	held    [nvtopo.MaxGPUs + 1]int // GPUs of pods that run, by the size of the pod
	supply  [2]supply               // of machines, by each of their sizes
	traffic map[[2]int]traffic      // by both sizes of a machine

	places          Places
	inLeaf, inSpine []tally
	tied            []*group // what least found
}

// place is where a node is: its group (nil: nowhere) and position in it.
type place struct {
	group *group
	at    int
}

// NewIndex returns an empty index of machines that are in one leaf; see SetPlaces.
func NewIndex() *Index {
	return &Index{buckets: map[key]*Bucket{}, classes: map[nvtopo.ClassID]int{}, supply: [2]supply{{}, {}}, traffic: map[[2]int]traffic{}, inLeaf: []tally{{}}, inSpine: []tally{{}}}
}

// Put says in which state a machine is. Nodes are small numbers from 0.
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
	x.count(k.class, 1) // before the old one goes, so that a class of one machine is never without
	x.Remove(node)
	if b.size == 0 {
		b.at = len(x.active)
		x.active = append(x.active, b)
	}
	x.attach(node, b)
	x.sizes[m.Tables.Graph().Len()]++
}

// Remove takes a machine out, if it is in.
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

// Machine returns the state that a machine is in, and false if it is not in the index.
func (x *Index) Machine(node int) (Machine, bool) {
	if !x.has(node) {
		return Machine{}, false
	}
	return x.where[node].group.bucket.Machine, true
}

func (x *Index) has(node int) bool { return node < len(x.where) && x.where[node].group != nil }

// Largest is the number of GPUs of the machine that has most; 0 if there is none.
func (x *Index) Largest() int {
	n := len(x.sizes) - 1
	for n > 0 && x.sizes[n] == 0 {
		n--
	}
	return n
}

// count counts a machine of a class in or out.
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

// offer is what the bucket's machines have for a demand.
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

// Offer is the best the machine has for a demand; ok is false if it has nothing.
// KnownOnly is not looked at.
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

	// What Top compares.
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

// Top compares candidates and returns those that are at most some points of the score behind the
// best, best first, and what they were rated by. It reorders cs.
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

// Best returns the best machine for a demand and what it offers; ok is false if
// none can serve it. Of equal machines one with the least Spare is taken, and of these
// the lowest node.
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
