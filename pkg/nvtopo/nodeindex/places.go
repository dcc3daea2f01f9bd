// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"iter"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Places is where machines are in the fabric, as far as the choice between equal ones asks:
// in which domain of the innermost level, a leaf, and in which of the level around that, a
// spine. It is not changed once an Index has it.
type Places struct {
	Leaf  []int // by node; a node beyond its end is in leaf 0
	Spine []int // by leaf
}

// Spare is how many whole machines the leaf of a machine has, and then how many its spine
// has: those with all their GPUs healthy and free. Of equal machines that with the least is
// taken. So leaves that are broken into already are finished first, and the others stay
// whole for pods that need many machines close to each other.
type Spare uint32

// spine is the part of a Spare that counts the spine's machines. More are not told apart.
const (
	spineBits = 16
	maxSpare  = 1<<spineBits - 1
)

// NoSpare is more than any Spare.
const NoSpare = int64(1) << (2 * spineBits)

// whole reports whether the machine could be given out as a whole.
func (m *Machine) whole() bool {
	return m.Free == nvtopo.FullMask(m.Tables.Graph().Len()) && m.Degraded == 0 && m.Held == 0 && !m.Unknown
}

// group is the machines of one bucket that are in one leaf.
type group struct {
	bucket *Bucket
	leaf   int
	nodes  []int // in no order
	at     int   // in Bucket.groups
}

// SetPlaces says where the machines are; nil: nobody knows, and all are in one leaf.
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
	x.places, x.wholeInLeaf, x.wholeInSpine = *p, make([]int, leaves), make([]int, spines)
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

// attach puts a machine that is nowhere into a bucket.
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
	x.countWhole(g, 1)
}

// detach takes a machine out of its bucket.
func (x *Index) detach(node int) {
	p := x.where[node]
	x.where[node] = place{}
	g, b := p.group, p.group.bucket
	b.size--
	x.countWhole(g, -1)
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

func (x *Index) countWhole(g *group, by int) {
	if g.bucket.whole {
		x.wholeInLeaf[g.leaf] += by
		x.wholeInSpine[x.spine(g.leaf)] += by
	}
}

// Spare is what a machine is judged by among equals.
func (x *Index) Spare(node int) Spare { return x.spareOf(x.leaf(node)) }

func (x *Index) spareOf(leaf int) Spare {
	return Spare(min(x.wholeInLeaf[leaf], maxSpare)<<spineBits | min(x.wholeInSpine[x.spine(leaf)], maxSpare))
}

// Tied are machines between which nothing decides. It is valid until the next call of a
// method of the Index.
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

// InOrder yields the machines of candidates that Top returned, best first: by Raw, then by
// Spare.
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

// bySpare yields the machines of candidates of equal Raw. Almost always those with the least
// Spare are enough, so it looks for the next ones only when somebody asks for them.
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
