// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

// addCPUs adds the CPU manager's hints for n exclusive CPUs.
//
// As for devices, a set of nodes is a hint if it has n CPUs that are free or left by init containers, all
// of which it must contain; and preferred if no smaller set has n CPUs at all. align-by-socket also
// prefers sets of no more sockets than the narrowest would need.
func (m *Machine) addCPUs(l *lists, s *State, n int) {
	c := m.cpu
	if c == nil || n == 0 {
		return
	}
	available := s.shared.minus(c.reserved)
	var kept NodeSet
	var left [MaxNodes]int
	for i := range m.nodes {
		left[i] = c.nodes[i].common(&available)
		if c.nodes[i].common(&s.own.cpus) > 0 {
			kept |= 1 << i
		}
	}
	reused := s.own.cpus.len()
	row := l.next()
	width := c.with.len()
	for set := NodeSet(1); set <= m.all; set++ {
		if !set.in(c.with) {
			continue
		}
		total, have := 0, reused
		for i := range m.nodes {
			if set.has(i) {
				total += c.nodeSize[i]
				have += left[i]
			}
		}
		if total >= n {
			width = min(width, set.len())
		}
		if kept.in(set) && have >= n {
			row[set] = offered
		}
	}
	if c.bySocket {
		c.preferSockets(row, width)
	}
	if !l.keep(width) {
		l.impossible = true
	}
}

// preferSockets marks the hints with as few sockets as width nodes can have at best.
func (c *layout) preferSockets(row []uint8, width int) {
	perSocket := c.with.len() / len(c.sockets)
	if perSocket == 0 {
		return
	}
	least := (width + perSocket - 1) / perSocket
	for set := range row {
		if row[set] != 0 && c.socketsOf(NodeSet(set)) == least {
			row[set] |= preferred
		}
	}
}

func (c *layout) socketsOf(set NodeSet) int {
	n := 0
	for _, s := range c.sockets {
		if s&set != 0 {
			n++
		}
	}
	return n
}

// takeCPUs gives a container its exclusive CPUs as the CPU manager does, and reports whether it can:
// those of the hint's nodes first, then others.
func (m *Machine) takeCPUs(s *State, ct *Container, h Hint) bool {
	c := m.cpu
	if c == nil || ct.CPUs == 0 {
		return true
	}
	if c.fullCores {
		// CPUs that init containers left are not used here.
		if ct.CPUs%c.threads != 0 || ct.CPUs > s.shared.common(&c.wholeCores) {
			return false
		}
	}
	available := s.shared.minus(c.reserved).or(s.own.cpus)
	var got cpuSet
	if h.Bound {
		aligned := available.and(c.within(h.Nodes))
		part, ok := c.take(aligned, min(ct.CPUs, aligned.len()))
		if !ok {
			return false
		}
		got = part
	}
	rest, ok := c.take(available.minus(got), ct.CPUs-got.len())
	if !ok {
		return false
	}
	got = got.or(rest)
	s.shared = s.shared.minus(got)
	if ct.Kind == Init {
		s.own.cpus = s.own.cpus.or(got)
	} else {
		s.own.cpus = s.own.cpus.minus(got)
	}
	return true
}

// within returns the CPUs that a hint of these nodes covers.
func (c *layout) within(set NodeSet) (s cpuSet) {
	if c.bySocket {
		wider := NodeSet(0)
		for _, socket := range c.sockets {
			if socket&set != 0 {
				wider |= socket
			}
		}
		set = wider
	}
	for i := range c.nodes {
		if set.has(i) {
			s = s.or(c.nodes[i])
		}
	}
	return s
}

// take takes n of the available CPUs in kubelet's order.
func (c *layout) take(available cpuSet, n int) (cpuSet, bool) {
	if n <= 0 {
		return cpuSet{}, true
	}
	if available.len() < n {
		return cpuSet{}, false
	}
	if c.distribute {
		switch got, packed := c.takeSpread(available, n); {
		case packed:
		case got == nil:
			return cpuSet{}, false
		default:
			return *got, true
		}
	}
	return c.takePacked(available, n), true
}

// taking is the state of one run of takePacked.
type taking struct {
	c    *layout
	left cpuSet // still available
	got  cpuSet
	need int
}

func (t *taking) add(s cpuSet) {
	t.got, t.left = t.got.or(s), t.left.minus(s)
	t.need -= s.len()
}

// takePacked takes whole free sockets or nodes while that many CPUs are needed, then whole free cores,
// then single CPUs; always from the socket, node and core with the fewest free CPUs on, so that the
// emptiest are filled last.
func (c *layout) takePacked(available cpuSet, n int) cpuSet {
	t := taking{c: c, left: available, need: n}
	if len(c.sockets) < c.with.len() {
		t.wholeSockets()
		t.wholeNodes()
	} else {
		t.wholeNodes()
	}
	if !c.spread && t.need > 0 {
		t.wholeCores()
	}
	if t.need > 0 {
		t.single()
	}
	return t.got
}

func (t *taking) wholeSockets() {
	c := t.c
	var order [MaxNodes]int
	var free [MaxNodes]int
	for i, socket := range c.sockets {
		order[i] = i
		for j := range c.nodes {
			if socket.has(j) {
				free[i] += c.nodes[j].common(&t.left)
			}
		}
	}
	sortByFree(order[:len(c.sockets)], &free)
	for _, i := range order[:len(c.sockets)] {
		if free[i] == c.perSocket && t.need >= free[i] {
			for j := range c.nodes {
				if c.sockets[i].has(j) {
					t.add(c.nodes[j])
				}
			}
		}
	}
}

func (t *taking) wholeNodes() {
	if t.need <= 0 {
		return
	}
	nodes, n := t.nodeOrder()
	for _, i := range nodes[:n] {
		if size := t.c.nodeSize[i]; t.c.nodes[i].common(&t.left) == size && t.need >= size {
			t.add(t.c.nodes[i])
		}
	}
}

// nodeOrder returns the nodes with CPUs left, ordered by the CPUs left of their socket and then by their
// own, fewest first.
func (t *taking) nodeOrder() (order [MaxNodes]int, n int) {
	c := t.c
	var free, socket [MaxNodes]int
	for i := range c.nodes {
		if free[i] = c.nodes[i].common(&t.left); free[i] > 0 {
			order[n] = i
			n++
			socket[c.socketOf[i]] += free[i]
		}
	}
	// Insertion sort: there are few nodes, and it does not allocate.
	before := func(a, b int) bool {
		x, y := c.socketOf[a], c.socketOf[b]
		switch {
		case x != y && socket[x] != socket[y]:
			return socket[x] < socket[y]
		case x != y:
			return x < y
		case free[a] != free[b]:
			return free[a] < free[b]
		}
		return a < b
	}
	for i := 1; i < n; i++ {
		for j := i; j > 0 && before(order[j], order[j-1]); j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order, n
}

func sortByFree(order []int, free *[MaxNodes]int) {
	for i := 1; i < len(order); i++ {
		for j := i; j > 0 && free[order[j]] < free[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
}

func (t *taking) wholeCores() {
	nodes, n := t.nodeOrder()
	for _, i := range nodes[:n] {
		for k := range t.c.ofNode[i] {
			c := &t.c.ofNode[i][k]
			if free := c.free(&t.left); free == t.c.threads && free == len(c.cpus) && t.need >= free {
				t.add(c.set())
			}
		}
	}
}

// single takes CPUs one by one, first from the cores with the fewest left.
func (t *taking) single() {
	nodes, n := t.nodeOrder()
	before := t.left
	for _, i := range nodes[:n] {
		cores := t.c.ofNode[i]
		most := 0
		for k := range cores {
			most = max(most, len(cores[k].cpus))
		}
		for free := 1; free <= most; free++ {
			for k := range cores {
				if cores[k].free(&before) != free {
					continue
				}
				for _, cpu := range cores[k].cpus {
					if t.need > 0 && before.has(int(cpu)) {
						var one cpuSet
						one.add(int(cpu))
						t.add(one)
					}
				}
			}
		}
	}
}
