// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"iter"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Places is the positions of machines in the fabric, for the choice between equal ones: the domain of the
// innermost level, a leaf, and that of the level around it, a spine. It must not be changed once an Index
// has it.
type Places struct {
	Leaf  []int // by node; a node beyond its end is in leaf 0
	Spine []int // by leaf
}

// Spare is the room for gangs, which need many whole machines close to each other, around a machine: how
// many machines of its leaf are clear, how many of them are whole, and how many of its spine are whole,
// in this order. Of equal machines the one with the least is taken. So leaves that single pods have
// broken into are filled first, and the others stay intact.
//
// A machine is whole if all its GPUs are healthy and free. It is clear if it will be whole once gangs
// end: no pod without a gang has any of its GPUs.
type Spare uint64

// spareBits is the width of each of the three numbers. Greater numbers of machines are treated as equal.
const (
	spareBits = 13
	maxSpare  = 1<<spareBits - 1
)

// NoSpare is greater than any Spare.
const NoSpare = int64(1) << (3 * spareBits)

// tally is a number of clear and of whole machines.
type tally struct{ clear, whole int }

// tally returns the tally of the machine itself.
func (m *Machine) tally() (t tally) {
	full := nvtopo.FullMask(m.Tables.Graph().Len())
	if m.Healthy == full && m.Degraded == 0 && !m.Singles {
		t.clear = 1
	}
	if m.Free == full && m.Degraded == 0 && m.Held == 0 && !m.Unknown {
		t.whole = 1
	}
	return t
}

func (t *tally) add(o tally, times int) {
	t.clear += times * o.clear
	t.whole += times * o.whole
}

// group is the machines of one bucket that are in one leaf.
type group struct {
	bucket *Bucket
	leaf   int
	nodes  []int // in no order
	at     int   // in Bucket.groups
}

// SetPlaces sets the positions of the machines; nil: not known, and all are in one leaf.
func (x *Index) SetPlaces(p *Places) {
	if p == nil {
		p = &Places{}
	}
	buckets := make([]*Bucket, len(x.where))
	for node := range x.where {
		if g := x.where[node].group; g != nil {
			buckets[node] = g.bucket
			x.detach(node)
		}
	}
	leaves, spines := max(1, len(p.Spine)), 1
	for _, spine := range p.Spine {
		spines = max(spines, spine+1)
	}
	x.places, x.inLeaf, x.inSpine = *p, make([]tally, leaves), make([]tally, spines)
	for node, b := range buckets {
		if b != nil {
			x.attach(node, b)
		}
	}
}

func (x *Index) leaf(node int) int {
	if node >= len(x.places.Leaf) {
		return 0
	}
	return x.places.Leaf[node]
}

func (x *Index) spine(leaf int) int {
	if leaf >= len(x.places.Spine) {
		return 0
	}
	return x.places.Spine[leaf]
}

// attach adds a machine without a group to a bucket.
func (x *Index) attach(node int, b *Bucket) {
	leaf := x.leaf(node)
	g := b.byLeaf[leaf]
	if g == nil {
		if g = b.idle; g == nil {
			g = &group{bucket: b}
		}
		b.idle = nil
		g.leaf, g.at = leaf, len(b.groups)
		b.byLeaf[leaf], b.groups = g, append(b.groups, g)
	}
	x.where[node] = place{g, len(g.nodes)}
	g.nodes = append(g.nodes, node)
	b.size++
	x.tally(g, 1)
}

// detach removes a machine from its bucket.
func (x *Index) detach(node int) {
	p := x.where[node]
	x.where[node] = place{}
	g, b := p.group, p.group.bucket
	b.size--
	x.tally(g, -1)
	last := len(g.nodes) - 1
	if moved := g.nodes[last]; moved != node {
		g.nodes[p.at] = moved
		x.where[moved].at = p.at
	}
	g.nodes = g.nodes[:last]
	if last > 0 {
		return
	}
	end := len(b.groups) - 1
	b.groups[g.at] = b.groups[end]
	b.groups[g.at].at = g.at
	b.groups[end] = nil
	b.groups = b.groups[:end]
	delete(b.byLeaf, g.leaf)
	b.idle = g
}

// tally adds or removes a machine of a group in the sums of its leaf and spine.
func (x *Index) tally(g *group, by int) {
	x.inLeaf[g.leaf].add(g.bucket.counts, by)
	x.inSpine[x.spine(g.leaf)].add(g.bucket.counts, by)
}

// Spare returns the value by which a machine is ranked among equals.
func (x *Index) Spare(node int) Spare { return x.spareOf(x.leaf(node)) }

func (x *Index) spareOf(leaf int) Spare {
	here, around := x.inLeaf[leaf], x.inSpine[x.spine(leaf)]
	return spare(here.clear, here.whole, around.whole)
}

func spare(clearInLeaf, wholeInLeaf, wholeInSpine int) (s Spare) {
	for _, n := range [...]int{clearInLeaf, wholeInLeaf, wholeInSpine} {
		s = s<<spareBits | Spare(min(n, maxSpare))
	}
	return s
}

// Tied are machines that are equal in all criteria. It is valid until the next call of a method of the
// Index.
type Tied struct {
	Raw    int64
	Spare  Spare
	groups []*group
}

// Nodes yields the machines in no order.
func (t *Tied) Nodes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, g := range t.groups {
			for _, node := range g.nodes {
				if !yield(node) {
					return
				}
			}
		}
	}
}

// InOrder yields the machines of candidates that Top returned, best first: by Raw, then by Spare.
func (x *Index) InOrder(cs []Candidate) iter.Seq[*Tied] {
	return func(yield func(*Tied) bool) {
		for len(cs) > 0 {
			n := 1
			for n < len(cs) && cs[n].Raw == cs[0].Raw {
				n++
			}
			if !x.bySpare(cs[:n], yield) {
				return
			}
			cs = cs[n:]
		}
	}
}

// bySpare yields the machines of candidates of equal Raw. Almost always those with the least Spare are
// enough, so it finds the next ones only when they are requested.
func (x *Index) bySpare(cs []Candidate, yield func(*Tied) bool) bool {
	for spare, ok := x.least(cs, -1); ok; spare, ok = x.least(cs, int64(spare)) {
		if !yield(&Tied{Raw: cs[0].Raw, Spare: spare, groups: x.tied}) {
			return false
		}
	}
	return true
}

// least finds the groups of candidates with the least Spare above a given one, for x.tied.
func (x *Index) least(cs []Candidate, above int64) (Spare, bool) {
	least := NoSpare
	for i := range cs {
		for _, g := range cs[i].Bucket.groups {
			spare := int64(x.spareOf(g.leaf))
			if spare <= above || spare > least {
				continue
			}
			if spare < least {
				least, x.tied = spare, x.tied[:0]
			}
			x.tied = append(x.tied, g)
		}
	}
	return Spare(least), least < NoSpare
}
