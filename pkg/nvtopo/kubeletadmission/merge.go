// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import "math"

// Hint is the set of NUMA nodes that kubelet has chosen for a container.
type Hint struct {
	Nodes NodeSet
	// Bound reports that devices, CPUs and memory are taken from Nodes first. Without it there is no
	// preference, and Nodes is empty.
	Bound     bool
	Preferred bool
}

// smallNodes is the number of NUMA nodes up to which hints are kept without allocating.
const smallNodes = 8

// maxLists is one list of hints per resource, one for CPUs, one for memory.
const maxLists = MaxResources + 2

// Entries of a list of hints, by set of nodes; 0 where the set is no hint.
const (
	offered   uint8 = 1 << iota // the resource is available on these nodes
	preferred                   // and no smaller set could ever satisfy the request
)

// lists are the hints of all managers for one container.
type lists struct {
	n          int
	size       int  // sets of nodes
	impossible bool // some resource is not available on any set
	small      [maxLists][1 << smallNodes]uint8
	large      [maxLists][]uint8
}

// row returns list i.
func (l *lists) row(i int) []uint8 {
	if l.size <= 1<<smallNodes {
		return l.small[i][:l.size]
	}
	if l.large[i] == nil {
		l.large[i] = make([]uint8, l.size)
	}
	return l.large[i]
}

// next returns an empty list to be filled, and then kept by keep.
func (l *lists) next() []uint8 {
	row := l.row(l.n)
	clear(row)
	return row
}

// keep marks the hints of the given size in the list just filled as preferred, and reports whether the
// list has any hint.
func (l *lists) keep(width int) bool {
	row, any := l.row(l.n), false
	for set := range row {
		if row[set] == 0 {
			continue
		}
		any = true
		if NodeSet(set).len() == width {
			row[set] |= preferred
		}
	}
	if any {
		l.n++
	}
	return any
}

// merge returns one hint, and whether the policy admits the container.
//
// kubelet tries every combination of one hint of each list. The result of a combination is the
// intersection of its sets, preferred only if all its sets are equal and preferred. So the preferred
// results are the sets that every list prefers; only without any do intersections matter.
func (m *Machine) merge(l *lists) (Hint, bool) {
	if m.policy == PolicySingleNUMANode {
		return m.mergeSingle(l)
	}
	if l.n == 0 {
		return Hint{Nodes: m.all, Bound: true, Preferred: !l.impossible}, !l.impossible || m.policy == PolicyBestEffort
	}
	if !l.impossible {
		best := NodeSet(0)
		for set := NodeSet(1); set <= m.all; set++ {
			if l.allPrefer(int(set)) && (best == 0 || m.fitter(set, best)) {
				best = set
			}
		}
		if best != 0 {
			return Hint{Nodes: best, Bound: true, Preferred: true}, true
		}
	}
	if m.policy == PolicyRestricted {
		return Hint{}, false
	}
	return Hint{Nodes: m.bestIntersection(l), Bound: true}, true
}

func (l *lists) allPrefer(set int) bool {
	for i := range l.n {
		if l.row(i)[set]&preferred == 0 {
			return false
		}
	}
	return true
}

// mergeSingle is merge restricted to preferred hints of one node.
func (m *Machine) mergeSingle(l *lists) (Hint, bool) {
	if l.impossible {
		return Hint{}, false
	}
	if l.n == 0 {
		return Hint{Preferred: true}, true
	}
	for i := range m.nodes {
		if !l.allPrefer(1 << i) {
			continue
		}
		if m.nodes == 1 {
			return Hint{Preferred: true}, true // all nodes mean no preference
		}
		return Hint{Nodes: 1 << i, Bound: true, Preferred: true}, true
	}
	return Hint{}, false
}

// fitter reports whether kubelet prefers a to another set b: the narrower, then with
// prefer-closest-numa-nodes the one of smaller mean distance, then the smaller number, which has the
// lower highest node.
func (m *Machine) fitter(a, b NodeSet) bool {
	if x, y := a.len(), b.len(); x != y {
		return x < y
	}
	if m.closest {
		// Sets of one size have equally many pairs, so sums compare like means.
		if x, y := m.distance(a), m.distance(b); x != y {
			return x < y
		}
	}
	return a < b
}

// distance returns the sum of the distances of all ordered pairs, each node's to itself included.
func (m *Machine) distance(set NodeSet) int {
	sum := 0
	for i := range m.nodes {
		for j := range m.nodes {
			if set.has(i) && set.has(j) {
				sum += m.distances[i][j]
			}
		}
	}
	return sum
}

// bestIntersection returns kubelet's choice when nothing is preferred: among the non-empty intersections
// one as wide as the resource that needs most nodes, else the widest below that, else the narrowest
// above.
func (m *Machine) bestIntersection(l *lists) NodeSet {
	width := 0
	for i := range l.n {
		least := math.MaxInt
		for set, e := range l.row(i) {
			if e != 0 {
				least = min(least, NodeSet(set).len())
			}
		}
		width = max(width, least)
	}
	rank := func(s NodeSet) int {
		n := s.len()
		if n > width {
			return m.nodes + n
		}
		return width - n
	}
	best := m.all
	found := false
	for set, ok := range m.intersections(l) {
		s := NodeSet(set)
		if !ok || s == 0 {
			continue
		}
		if !found || rank(s) < rank(best) || rank(s) == rank(best) && m.fitter(s, best) {
			best, found = s, true
		}
	}
	return best
}

// intersections returns which sets are the intersection of one hint of each list.
//
// Two families of sets are combined by counting: for every set, the pairs whose members both contain it
// are the product of the numbers of members that do, and subtracting the supersets' shares leaves the
// pairs that intersect in exactly this set. That is nodes·2^nodes steps a list and not 4^nodes.
func (m *Machine) intersections(l *lists) []bool {
	size := l.size
	have := make([]bool, size)
	for set, e := range l.row(0) {
		have[set] = e != 0
	}
	a, b := make([]uint64, size), make([]uint64, size)
	for i := 1; i < l.n; i++ {
		for set, e := range l.row(i) {
			a[set], b[set] = 0, 0
			if have[set] {
				a[set] = 1
			}
			if e != 0 {
				b[set] = 1
			}
		}
		m.sumSupersets(a)
		m.sumSupersets(b)
		for set := range a {
			a[set] *= b[set]
		}
		for bit := range m.nodes {
			for set := range a {
				if set>>bit&1 == 0 {
					a[set] -= a[set|1<<bit]
				}
			}
		}
		for set := range a {
			have[set] = a[set] != 0
		}
	}
	return have
}

func (m *Machine) sumSupersets(a []uint64) {
	for bit := range m.nodes {
		for set := range a {
			if set>>bit&1 == 0 {
				a[set] += a[set|1<<bit]
			}
		}
	}
}
