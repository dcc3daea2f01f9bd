// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

// memory is the memory manager's state of one NUMA node.
type memory struct {
	free, allocatable int64
	cells             NodeSet // the group it is used in
	used              bool    // some container has memory of the node
}

// maxCarried bounds the groups of nodes with memory left by init containers; a pod with more is rare
// enough to be judged without the rest.
const maxCarried = 4

// carriedMemory is the memory that init containers leave of a group of nodes.
type carriedMemory struct {
	nodes NodeSet
	size  int64
}

// left returns the memory that init containers left of exactly these nodes.
func (c *carried) left(nodes NodeSet) int64 {
	for i := range c.n {
		if c.memory[i].nodes == nodes {
			return c.memory[i].size
		}
	}
	return 0
}

// leave raises the memory left of these nodes to at least size.
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

// sums returns the free and the allocatable memory of a set of nodes.
func (m *Machine) sums(s *State, set NodeSet) (free, allocatable int64) {
	for i := range m.nodes {
		if set.has(i) {
			free += s.memory[i].free
			allocatable += s.memory[i].allocatable
		}
	}
	return free, allocatable
}

// mixes reports whether using memory of a set would break the rule that a node is used either by itself
// or in one group.
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

// memoryHints fills row with the memory manager's hints and returns the size of the preferred ones: the
// fewest nodes that could ever give that much.
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

// addMemory adds the memory manager's hints. Without any hint the manager has no preference, and refuses
// the container only when the memory is taken.
func (m *Machine) addMemory(l *lists, s *State, size int64) {
	if !m.memory || size == 0 {
		return
	}
	width := m.memoryHints(s, size, l.next())
	l.keep(width)
}

// takeMemory reserves a container's memory as the memory manager does, and reports whether it can.
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

// memoryNodes returns the nodes from which the memory manager takes memory under a hint: its own best if
// there is no hint, and its best around the hint if that has too little, since the other managers' hints
// may have narrowed its own. If the hint was preferred, both must be preferred too.
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

// bestMemory returns the memory manager's best hint that contains within: a preferred one, then the
// narrowest.
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
