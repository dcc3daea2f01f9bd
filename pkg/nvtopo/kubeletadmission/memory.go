// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

// memory is one NUMA node in the memory manager's account.
type memory struct {
	free, allocatable int64
	cells             NodeSet // the group it is used in
	used              bool    // some container has memory of it
}

// maxCarried bounds the groups of nodes of which init containers leave memory; a
// pod with more is rare enough to be judged without the rest.
const maxCarried = 4

// carriedMemory is what init containers leave of a group of nodes.
type carriedMemory struct {
	nodes NodeSet
	size  int64
}

// left returns what init containers left of exactly these nodes.
func (c *carried) left(nodes NodeSet) int64 {
	for i := range c.n {
		if c.memory[i].nodes == nodes {
			return c.memory[i].size
		}
	}
	return 0
}

// leave raises what is left of these nodes to at least size.
func (c *carried) leave(nodes NodeSet, size int64) {
	for i := range c.n {
		if c.memory[i].nodes == nodes {
			c.memory[i].size = max(c.memory[i].size, size)
			return
		}
	}
	if c.n < maxCarried {
		c.memory[c.n] = carriedMemory{nodes, size}
		c.n++
	}
}

func (c *carried) use(nodes NodeSet, size int64) {
	for i := range c.n {
		if c.memory[i].nodes == nodes {
			c.memory[i].size = max(0, c.memory[i].size-size)
		}
	}
}

// sums returns what a set of nodes has free and could ever give.
func (m *Machine) sums(s *State, set NodeSet) (free, allocatable int64) {
	for i := range m.nodes {
		if set.has(i) {
			free += s.memory[i].free
			allocatable += s.memory[i].allocatable
		}
	}
	return free, allocatable
}

// mixes reports whether memory of a set would break the rule that a node is used
// either by itself or in one group.
func (m *Machine) mixes(s *State, set NodeSet) bool {
	single := set.len() == 1
	for i := range m.nodes {
		if !set.has(i) {
			continue
		}
		n := &s.memory[i]
		if single {
			return n.cells.len() > 1
		}
		if n.used && n.cells != set {
			return true
		}
	}
	return false
}

// memoryHints fills row with the memory manager's hints and returns the size of
// the preferred ones: the fewest nodes that could ever give as much.
func (m *Machine) memoryHints(s *State, size int64, row []uint8) (width int) {
	width = m.nodes
	for set := NodeSet(1); set <= m.all; set++ {
		free, allocatable := m.sums(s, set)
		if allocatable < size {
			continue
		}
		width = min(width, set.len())
		if !m.mixes(s, set) && free+s.own.left(set) >= size {
			row[set] = offered
		}
	}
	return width
}

// addMemory adds the memory manager's hints. Without any it has no preference, and
// refuses the container only when it is to take the memory.
func (m *Machine) addMemory(l *lists, s *State, size int64) {
	if !m.memory || size == 0 {
		return
	}
	width := m.memoryHints(s, size, l.next())
	l.keep(width)
}

// takeMemory sets a container's memory aside as the memory manager does, and
// reports whether it can.
func (m *Machine) takeMemory(s *State, c *Container, h Hint) bool {
	if !m.memory || c.Memory == 0 {
		return true
	}
	nodes, ok := m.memoryNodes(s, c.Memory, h)
	if !ok || nodes.len() > 1 && m.mixes(s, nodes) {
		return false
	}
	size := max(0, c.Memory-s.own.left(nodes))
	for i := range m.nodes {
		if !nodes.has(i) {
			continue
		}
		n := &s.memory[i]
		n.used, n.cells = true, nodes
		part := min(n.free, size)
		n.free -= part
		size -= part
	}
	if c.Kind == Init {
		s.own.leave(nodes, c.Memory)
	} else {
		s.own.use(nodes, c.Memory)
	}
	return true
}

// memoryNodes are those that the memory manager takes from under a hint: its own
// best where there is none, and its best around the hint where that has too little,
// since the others' hints may have narrowed its own. Neither may be one it does not
// prefer if the hint was preferred.
func (m *Machine) memoryNodes(s *State, size int64, h Hint) (NodeSet, bool) {
	nodes := h.Nodes
	if h.Bound {
		if free, _ := m.sums(s, nodes); free >= size {
			return nodes, true
		}
	}
	best, ok := m.bestMemory(s, size, nodes)
	if !ok || h.Preferred && !best.Preferred {
		return 0, false
	}
	return best.Nodes, true
}

// bestMemory is the memory manager's best hint that contains within: a preferred
// one, then the narrowest.
func (m *Machine) bestMemory(s *State, size int64, within NodeSet) (best Hint, ok bool) {
	var small [1 << smallNodes]uint8
	row := small[:]
	if m.nodes > smallNodes {
		row = make([]uint8, 1<<m.nodes)
	}
	width := m.memoryHints(s, size, row)
	for set := NodeSet(1); set <= m.all; set++ {
		if row[set] == 0 || !within.in(set) {
			continue
		}
		h := Hint{Nodes: set, Bound: true, Preferred: set.len() == width}
		narrower := set.len() < best.Nodes.len() || set.len() == best.Nodes.len() && set < best.Nodes
		if !ok || h.Preferred && !best.Preferred || h.Preferred == best.Preferred && narrower {
			best, ok = h, true
		}
	}
	return best, ok
}
